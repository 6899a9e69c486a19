// Real namespaces; skipped, loudly, without the permission to make them.
#include "demo_network.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "demo_link_probe.h"
#include "demo_process.h"

namespace theseus::demo {
namespace {

#define SKIP_WITHOUT_NAMESPACES() \
  if (!canMakeNamespaces()) GTEST_SKIP() << "SKIPPED: no permission to make network namespaces; run as root"

std::string ownInterfaces() {
  std::stringstream text;
  text << std::ifstream("/proc/net/dev").rdbuf();
  std::string names;
  for (std::string line; std::getline(text, line);) names += line.substr(0, line.find(':')) + "\n";
  return names;
}

TEST(DemoNetwork, LeavesTheMachinesOwnNetworkAlone) {
  SKIP_WITHOUT_NAMESPACES();
  const std::string before = ownInterfaces();
  auto network = DemoNetwork::create(3, 1000);
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(ownInterfaces(), before);
}

TEST(DemoNetwork, TheRateHoldsAndChangesBothWays) {
  SKIP_WITHOUT_NAMESPACES();
  auto network = DemoNetwork::create(3, 400);
  ASSERT_TRUE(network) << network.error().message;
  const auto rate = [&](int from, int to) {
    auto measured = measureLink(**network, from, to);
    EXPECT_TRUE(measured) << measured.error().message;
    return measured.value_or(0) * 8 / 1e6;
  };
  EXPECT_NEAR(rate(0, 1), 0.956 * 400, 40);
  ASSERT_TRUE((*network)->setRate(1, 100));
  EXPECT_NEAR(rate(0, 1), 0.956 * 100, 15);
  EXPECT_NEAR(rate(1, 2), 0.956 * 100, 15);
  EXPECT_NEAR(rate(2, 0), 0.956 * 400, 40);
  ASSERT_TRUE((*network)->setRate(1, 400));
  EXPECT_NEAR(rate(0, 1), 0.956 * 400, 40);
}

TEST(DemoNetwork, TooManyRanksAreRefused) {
  auto network = DemoNetwork::create(DemoNetwork::kMaxRanks + 1, 1000);
  ASSERT_FALSE(network);
  EXPECT_EQ(network.error().code, ErrorCode::kInvalidArgument);
}

TEST(DemoNetwork, AnImpossibleRateIsRefused) {
  SKIP_WITHOUT_NAMESPACES();
  auto network = DemoNetwork::create(1, 1000);
  ASSERT_TRUE(network) << network.error().message;
  // tc itself takes a negative rate for a huge one.
  EXPECT_FALSE((*network)->setRate(0, -5));
  EXPECT_FALSE((*network)->setRate(0, 0));
  EXPECT_FALSE((*network)->setRate(1, 1000));
}

TEST(DemoProcess, DiesWithItsParentHoweverThatEnds) {
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ProcessRequest request;
    request.title = "sleeper";
    request.arguments = {"/bin/sleep", "600"};
    auto sleeper = DemoProcess::start(request);
    const pid_t id = sleeper ? sleeper->id() : -1;
    if (::write(report[1], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) ::_exit(1);
    ::pause();
  }
  pid_t sleeper = -1;
  ASSERT_EQ(::read(report[0], &sleeper, sizeof sleeper), static_cast<ssize_t>(sizeof sleeper));
  ASSERT_GT(sleeper, 0);
  ::kill(parent, SIGKILL);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  ::close(report[0]);
  ::close(report[1]);
  // It is nobody's child of ours: watch it end. A dead one that its new parent has not reaped yet counts as
  // dead.
  const auto running = [&] {
    std::ifstream file("/proc/" + std::to_string(sleeper) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t state = text.rfind(") ");
    return state != std::string::npos && text[state + 2] != 'Z';
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (running() && std::chrono::steady_clock::now() < deadline) ::usleep(10000);
  EXPECT_FALSE(running());
}

}  // namespace
}  // namespace theseus::demo
