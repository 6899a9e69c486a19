#include "demo_failslow.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/check.h"
#include "demo_link_probe.h"
#include "demo_network.h"
#include "demo_report.h"
#include "demo_team.h"
#include "demo_view.h"
#include "demo_worker.h"

namespace theseus::demo {
namespace {

/// Inside namespaces nobody else can hold it.
constexpr int kNamespacePort = 29500;
constexpr int kLinkProbes = 3;
/// What TCP carries of a token bucket's rate: 1448 bytes of payload in a frame of 1514.
constexpr double kTcpGoodput = 1448.0 / 1514.0;
/// A probe below this share of it says that the processor, not the link, was the limit.
constexpr double kBusyShare = 0.95;

Result<std::string> ownProgram() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail(ErrorCode::kIo, fmt::format("cannot read /proc/self/exe: {}", error.message()));
  return path.string();
}

Result<std::string> randomSecret() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return fail(ErrorCode::kIo, "no random bytes for the job's secret");
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

/// A port that is free now; the worker that takes it says so if somebody was faster.
Result<int> freePort() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (socket.value() < 0 || ::bind(socket.value(), generic, length) != 0 ||
      ::getsockname(socket.value(), generic, &length) != 0) {
    return fail(ErrorCode::kIo, fmt::format("no free port on the loopback: {}", std::strerror(errno)));
  }
  return static_cast<int>(ntohs(address.sin_port));
}

/// A private folder that goes away with this object.
class PrivateFolder {
 public:
  static Result<PrivateFolder> make() {
    std::string pattern = (std::filesystem::temp_directory_path() / "theseus-demo-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      return fail(ErrorCode::kIo, fmt::format("cannot make a folder {}: {}", pattern, std::strerror(errno)));
    }
    return PrivateFolder(pattern);
  }
  ~PrivateFolder() { remove(); }
  PrivateFolder(PrivateFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  const std::string& path() const { return path_; }
  void remove() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    path_.clear();
  }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

class FailSlowDemo {
 public:
  explicit FailSlowDemo(const FailSlowOptions& options) : options_(options), emulated_(options.emulate) {}

  Result<int> run() {
    catchInterrupts();
    THESEUS_TRY(chooseMeans());
    THESEUS_TRY(makeNetwork());
    auto team = startTeam();
    if (!team) return fail(team.error());
    std::optional<DemoTeam> rival;
    if (!options_.rival.empty()) {
      auto started = startRival();
      if (!started) return fail(started.error());
      rival.emplace(std::move(*started));
    }
    const ViewOptions viewOptions{options_.scenario.ranks, options_.scenario.bytes,
                                  options_.scenario.megabitsPerSecond, emulated_};
    auto view = options_.plain ? makePlainView(viewOptions) : makeView(viewOptions);
    ScenarioStage stage;
    stage.team = &*team;
    stage.rival = rival ? &*rival : nullptr;
    stage.view = view.get();
    stage.whileRunning = !emulated_;
    stage.setRate = [this, &team](int rank, double megabits) { return setRate(*team, rank, megabits); };
    auto result = runFailSlow(options_.scenario, stage);
    if (!result) return fail(result.error());
    return report(*result);
  }

 private:
  Status chooseMeans() {
    if (!emulated_ && !canMakeNamespaces()) {
      fmt::print("No permission to make network namespaces (that takes root): falling back to --emulate.\n");
      emulated_ = true;
    }
    if (!emulated_) return {};
    fmt::print(
        "Emulated links: all ranks on the loopback of this machine, each sender held to its rate by a token "
        "bucket of its own;"
        " what a rank receives is not limited.\n");
    if (options_.rival.empty()) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("--vs {} needs real links: run as root, without --emulate", options_.rival));
  }

  Status makeNetwork() {
    const ScenarioOptions& scenario = options_.scenario;
    context_.options = scenario;
    context_.emulated = emulated_;
    context_.rivalName = options_.rival;
    if (emulated_) {
      context_.bytesPerSecond = scenario.megabitsPerSecond * 1e6 / 8;
      context_.bytesPerSecondHow = "the emulated rate";
      return {};
    }
    auto network = DemoNetwork::create(scenario.ranks, scenario.megabitsPerSecond);
    if (!network) return fail(network.error());
    network_ = std::move(*network);
    return measureNetwork();
  }

  /// The best of a few short streams: a busy machine can only make them slower, and a low B would flatter the
  /// ratio to the bound.
  Status measureNetwork() {
    for (int attempt = 0; attempt < kLinkProbes; ++attempt) {
      auto measured = measureLink(*network_, 0, 1);
      if (!measured) return fail(measured.error());
      context_.bytesPerSecond = std::max(context_.bytesPerSecond, *measured);
    }
    context_.bytesPerSecondHow = "measured between two idle ranks before the start";
    const ScenarioOptions& scenario = options_.scenario;
    fmt::print(
        "{} ranks in network namespaces, links of {} Mbit/s: TCP carries {:.1f} MB/s between two of them.\n",
        scenario.ranks, scenario.megabitsPerSecond, context_.bytesPerSecond / 1e6);
    const double expected = kTcpGoodput * scenario.megabitsPerSecond * 1e6 / 8;
    if (context_.bytesPerSecond < kBusyShare * expected) {
      context_.bytesPerSecond = expected;
      context_.bytesPerSecondHow = "computed from the set rate; the machine was too busy to measure it";
      fmt::print(
          "Less than the links allow ({:.1f} MB/s): the machine is busy, do not trust this run's figures.\n",
          expected / 1e6);
    }
    return {};
  }

  Result<DemoTeam> startTeam() {
    auto program =
        options_.workerProgram.empty() ? ownProgram() : Result<std::string>(options_.workerProgram);
    if (!program) return fail(program.error());
    auto secret = randomSecret();
    if (!secret) return fail(secret.error());
    auto port = emulated_ ? freePort() : Result<int>(kNamespacePort);
    if (!port) return fail(port.error());
    std::vector<ProcessRequest> requests;
    for (int rank = 0; rank < options_.scenario.ranks; ++rank) {
      ProcessRequest request = baseRequest(rank);
      request.arguments = {*program,
                           "demo",
                           "worker",
                           "--rank",
                           std::to_string(rank),
                           "--size",
                           std::to_string(options_.scenario.ranks),
                           "--bytes",
                           std::to_string(options_.scenario.bytes),
                           "--master-address",
                           address(0),
                           "--master-port",
                           std::to_string(*port),
                           "--bind-address",
                           address(rank)};
      if (emulated_) {
        request.arguments.insert(request.arguments.end(),
                                 {"--emulate-rate", fmt::format("{:.0f}", context_.bytesPerSecond)});
      }
      request.environment = {{kSecretVariable, *secret}};
      requests.push_back(std::move(request));
    }
    return DemoTeam::start(requests);
  }

  Result<DemoTeam> startRival() {
    auto program = ownProgram();
    if (!program) return fail(program.error());
    const std::string rivalProgram =
        (std::filesystem::path(*program).parent_path() / "gloo_allreduce").string();
    if (!std::filesystem::exists(rivalProgram)) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{} does not exist: install libgloo-dev, then build again (./dev build)",
                              rivalProgram));
    }
    auto folder = PrivateFolder::make();
    if (!folder) return fail(folder.error());
    std::vector<ProcessRequest> requests;
    for (int rank = 0; rank < options_.scenario.ranks; ++rank) {
      ProcessRequest request = baseRequest(rank);
      request.title = fmt::format("{} rank {}", options_.rival, rank);
      request.arguments = {rivalProgram,
                           "--rank",
                           std::to_string(rank),
                           "--size",
                           std::to_string(options_.scenario.ranks),
                           "--bytes",
                           std::to_string(options_.scenario.bytes),
                           "--address",
                           address(rank),
                           "--store",
                           folder->path()};
      requests.push_back(std::move(request));
    }
    // All have met when start() returns: the folder may go.
    return DemoTeam::start(requests);
  }

  ProcessRequest baseRequest(int rank) const {
    ProcessRequest request;
    request.title = fmt::format("rank {}", rank);
    if (network_) request.namespaceDescriptor = network_->namespaceDescriptor(rank);
    return request;
  }

  std::string address(int rank) const { return network_ ? network_->address(rank) : "127.0.0.1"; }

  Status setRate(DemoTeam& team, int rank, double megabitsPerSecond) {
    if (network_) return network_->setRate(rank, megabitsPerSecond);
    return team.tell(rank, fmt::format("rate {:.0f}", megabitsPerSecond * 1e6 / 8));
  }

  Result<int> report(const ScenarioResult& result) {
    fmt::print("{}", tableText(context_, result));
    if (!result.success()) {
      fmt::print("NOT a success: {}\n", result.shortfall);
      if (!result.linkRates.empty()) fmt::print("links as the ranks see them, MB/s:{}\n", result.linkRates);
      for (const std::string& line : result.explanation) fmt::print("  {}\n", line);
    }
    if (!options_.jsonFile.empty()) {
      std::ofstream file(options_.jsonFile);
      file << jsonText(context_, result);
      file.flush();
      if (!file) {
        return fail(ErrorCode::kIo,
                    fmt::format("cannot write {}: {}", options_.jsonFile, std::strerror(errno)));
      }
    }
    return result.success() ? 0 : 1;
  }

  FailSlowOptions options_;
  bool emulated_;
  ReportContext context_;
  std::unique_ptr<DemoNetwork> network_;
};

}  // namespace

int runFailSlowDemo(const FailSlowOptions& options) {
  auto exitCode = FailSlowDemo(options).run();
  if (exitCode) return *exitCode;
  std::fflush(stdout);
  fmt::print(stderr, "theseus demo: {}\n", exitCode.error().message);
  return 1;
}

}  // namespace theseus::demo
