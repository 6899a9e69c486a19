#include "runtime/control_server.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "runtime/bootstrap_fixture_for_test.h"

#ifdef THESEUS_HTTP

namespace theseus::runtime {
namespace {

using namespace std::chrono_literals;

/// Remembers what it was asked.
class FakeControl final : public ControlInterface {
 public:
  std::string statusJson() const override { return R"({"rank":3})"; }
  std::string explainJson(Collective collective, std::uint64_t bytes) const override {
    return R"({"collective":")" + std::string(name(collective)) + R"(","bytes":)" + std::to_string(bytes) +
           "}";
  }
  Result<std::string> newSched(const std::string& text) override {
    note("sched " + text.substr(0, 40) + " " + std::to_string(text.size()));
    if (text == "bad") return fail(ErrorCode::kInvalidSchedule, "no \"such\" plan");
    return std::string(32, 'a');
  }
  Status dropSched(const std::string& schedule) override {
    note("drop " + schedule);
    if (schedule == "absent") return fail(ErrorCode::kNotFound, "no schedule 'absent'");
    return {};
  }
  Status swap(Collective collective, const std::string& schedule) override {
    note("swap " + std::string(name(collective)) + " " + schedule);
    return {};
  }
  Status setExo(const std::string& attribute, const std::string& value) override {
    if (attribute == "throw") throw std::runtime_error("inside");
    note("exo " + attribute + "=" + value);
    return {};
  }
  std::string metricsText() const override { return "theseus_round 7\n"; }

  std::vector<std::string> notes() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(text);
  }
  mutable std::mutex mutex_;
  std::vector<std::string> notes_;
};

Descriptor connectUnix(const std::string& path) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
  return socket;
}

/// Sends raw bytes, reads until the server closes.
std::string converse(const Descriptor& socket, const std::string& text) {
  testing::sendText(socket, text);
  const timeval bound{10, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  std::string answer;
  char chunk[4096];
  ssize_t count = 0;
  while ((count = ::recv(socket.get(), chunk, sizeof(chunk), 0)) > 0)
    answer.append(chunk, static_cast<std::size_t>(count));
  return answer;
}

std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "Connection: close\r\n\r\n";
}

std::string post(const std::string& path, const std::string& body, const std::string& type = "text/plain") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class Server : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/theseus-test-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    base_ = folder;
    options_.root = base_ + "/root";
    options_.job = "job/1";
    options_.rank = 3;
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(base_);
  }
  void start() {
    auto started = startControlServer(control_, options_);
    ASSERT_TRUE(started) << started.error().message;
    server_ = std::move(*started);
  }
  std::string ask(const std::string& request) {
    return converse(connectUnix(server_->socketPath()), request);
  }

  std::string base_;
  ControlServerOptions options_;
  FakeControl control_;
  std::unique_ptr<ControlServer> server_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(Server, ReadingRoutes) {
  start();
  EXPECT_HAS(ask(get("/status")), R"({"rank":3})");
  EXPECT_HAS(ask(get("/metrics")), "theseus_round 7");
  EXPECT_HAS(ask(get("/explain?collective=reduce_scatter&bytes=1048576")),
             R"({"collective":"reducescatter","bytes":1048576})");
}

TEST_F(Server, WritingRoutes) {
  start();
  EXPECT_HAS(ask(post("/sched", R"({"generator":"ring"})")), std::string(32, 'a'));
  const std::string form = "application/x-www-form-urlencoded";
  EXPECT_HAS(ask(post("/drop", "schedule=ring", form)), "200 OK");
  EXPECT_HAS(ask(post("/swap", "collective=allreduce&schedule=ring%20two", form)), "200 OK");
  EXPECT_HAS(ask(post("/exo", "name=a&value=1%2B1", form)), "200 OK");
  EXPECT_EQ(control_.notes(), (std::vector<std::string>{R"(sched {"generator":"ring"} 20)", "drop ring",
                                                        "swap allreduce ring two", "exo a=1+1"}));
}

TEST_F(Server, ErrorsSayWhat) {
  start();
  const std::string form = "application/x-www-form-urlencoded";
  const std::string refused = ask(post("/sched", "bad"));
  EXPECT_HAS(refused, "HTTP/1.1 400");
  EXPECT_HAS(refused, R"({"error":{"code":"invalid_schedule","message":"no \"such\" plan"}})");
  EXPECT_HAS(ask(post("/drop", "schedule=absent", form)), "HTTP/1.1 404");
  EXPECT_HAS(ask(post("/drop", "")), R"(\"schedule\" is missing)");
  EXPECT_HAS(ask(get("/explain?collective=frobnicate&bytes=1")), "HTTP/1.1 400");
  for (const char* bytes : {"", "-1", "1e3", "99999999999999999999", "8x"}) {
    EXPECT_HAS(ask(get("/explain?collective=allreduce&bytes=" + std::string(bytes))), "HTTP/1.1 400");
  }
  EXPECT_HAS(ask(get("/nothing")), "HTTP/1.1 404");
  EXPECT_HAS(ask(get("/../../etc/passwd")), "HTTP/1.1 404");
  EXPECT_HAS(ask(post("/status", "")), "HTTP/1.1 404");
  EXPECT_HAS(ask(post("/exo", "name=throw&value=1", form)), "HTTP/1.1 500");
  EXPECT_TRUE(std::filesystem::exists(server_->socketPath()));
}

TEST_F(Server, GarbageAndHugeRequestsAreRefusedAndItGoesOn) {
  start();
  EXPECT_HAS(ask("\x01\x02\xff garbage\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_HAS(
      ask("POST /sched HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 99999999999\r\n\r\nx"),
      "HTTP/1.1 413");
  const std::string large(4u << 20, 'p');
  EXPECT_HAS(ask(post("/sched", large)), "200 OK");
  EXPECT_EQ(control_.notes().size(), 1u);
  ask(get("/" + std::string(100'000, 'a')));
  EXPECT_HAS(ask(get("/status")), "200 OK");
}

TEST_F(Server, SilentClientsHoldUpNeitherOthersForLongNorTheEnd) {
  start();
  std::vector<Descriptor> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(connectUnix(server_->socketPath()));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_HAS(ask(get("/status")), "200 OK");
  silent.push_back(connectUnix(server_->socketPath()));
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

TEST_F(Server, OnlyTheOwnerCanOpenTheSocketAndNothingIsLeft) {
  start();
  struct stat entry{};
  ASSERT_EQ(::stat(server_->socketPath().c_str(), &entry), 0);
  EXPECT_TRUE(S_ISSOCK(entry.st_mode));
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
  for (const std::string& folder : {options_.root, options_.root + "/job_1"}) {
    ASSERT_EQ(::stat(folder.c_str(), &entry), 0) << folder;
    EXPECT_EQ(entry.st_mode & 0777, 0700u);
  }
  EXPECT_EQ(server_->socketPath(), options_.root + "/job_1/3.sock");
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(options_.root));
}

TEST_F(Server, AFolderOfOthersIsNotUsed) {
  std::filesystem::create_directory(base_ + "/elsewhere");
  std::filesystem::create_symlink(base_ + "/elsewhere", options_.root);
  EXPECT_FALSE(startControlServer(control_, options_));
  if (::geteuid() != 0) GTEST_SKIP() << "the owner of a folder can be changed by root only";
  std::filesystem::remove(options_.root);
  std::filesystem::create_directory(options_.root);
  ASSERT_EQ(::chown(options_.root.c_str(), 65534, 65534), 0);
  EXPECT_FALSE(startControlServer(control_, options_));
}

TEST_F(Server, AnOpenFolderIsMadePrivate) {
  std::filesystem::create_directory(options_.root);
  ASSERT_EQ(::chmod(options_.root.c_str(), 0777), 0);
  start();
  struct stat entry{};
  ASSERT_EQ(::stat(options_.root.c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0700u);
}

TEST_F(Server, DeadSocketsAreReplacedAndLiveOnesAreNot) {
  std::filesystem::create_directories(options_.root + "/job_1");
  const std::string path = options_.root + "/job_1/3.sock";
  {
    Descriptor dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  EXPECT_EQ(probeSocket(path), SocketState::kDead);
  start();
  EXPECT_EQ(server_->socketPath(), path);
  EXPECT_EQ(probeSocket(path), SocketState::kAlive);
  auto second = startControlServer(control_, options_);
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)->socketPath(), options_.root + "/job_1/3.1.sock");
  second->reset();
  EXPECT_HAS(ask(get("/status")), "200 OK");
}

TEST_F(Server, TcpNeedsTheToken) {
  options_.tcpAddress = "127.0.0.1:0";
  EXPECT_FALSE(startControlServer(control_, options_));
  options_.token = "open";
  start();
  ASSERT_GT(server_->tcpPort(), 0);
  const auto over = [&](const std::string& headers) {
    return converse(testing::connectBlocking(server_->tcpPort()), get("/status", headers));
  };
  for (const char* wrong : {"", "Authorization: Bearer wrong\r\n", "Authorization: open\r\n",
                            "Authorization: Bearer openx\r\n"}) {
    const std::string answer = over(wrong);
    EXPECT_HAS(answer, "HTTP/1.1 401");
    EXPECT_EQ(answer.find("rank"), std::string::npos);
  }
  EXPECT_HAS(over("Authorization: Bearer open\r\n"), R"({"rank":3})");
  EXPECT_HAS(ask(get("/status")), "200 OK");  // the socket needs none
}

TEST_F(Server, BadTcpAddressesAreRefused) {
  options_.token = "open";
  for (const char* bad : {"127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":"}) {
    options_.tcpAddress = bad;
    EXPECT_FALSE(startControlServer(control_, options_)) << bad;
  }
}

TEST(JobName, SuitsAFileName) {
  EXPECT_EQ(fileNameOf("run-1"), "run-1");
  EXPECT_EQ(fileNameOf("../../etc"), "_.._.._etc");
  EXPECT_EQ(fileNameOf(""), "_");
  const std::string one = fileNameOf(std::string(200, 'x') + "1"),
                    two = fileNameOf(std::string(200, 'x') + "2");
  EXPECT_LE(one.size(), 40u);
  EXPECT_NE(one, two);
}

}  // namespace
}  // namespace theseus::runtime

#endif  // THESEUS_HTTP
