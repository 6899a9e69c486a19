#include "demo_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "demo_stream.h"
#include "theseus/communicator.h"

namespace theseus::demo {
namespace {

class TheseusLibrary final : public StreamLibrary {
 public:
  explicit TheseusLibrary(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  Result<StreamReport> allReduce(float* values, std::size_t count) override {
    // Measured here and not taken from the report, so that both sides of a comparison are timed by the same
    // clock at the same place.
    const auto start = std::chrono::steady_clock::now();
    auto status = communicator_->allReduce(values, values, count, Reduction{});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (!status) return fail(status.error());
    const CallReport call = communicator_->lastCall();
    return StreamReport{took.count(), call.schedule, call.sequence, call.round, call.limitWaitSeconds};
  }

  Status emulateLinkRate(double bytesPerSecond) override {
    return communicator_->emulateLinkRate(bytesPerSecond);
  }

  std::string statusJson() override { return oneLine(communicator_->statusJson()); }
  std::string explainJson(std::size_t bytes) override {
    return oneLine(communicator_->explainJson(Collective::kAllReduce, bytes));
  }

 private:
  static std::string oneLine(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }

  std::unique_ptr<Communicator> communicator_;
};

}  // namespace

int runWorker(const WorkerOptions& options) {
  CommunicatorOptions communicatorOptions;
  communicatorOptions.rank = options.rank;
  communicatorOptions.size = options.size;
  communicatorOptions.masterAddress = options.masterAddress;
  communicatorOptions.masterPort = options.masterPort;
  communicatorOptions.bindAddress = options.bindAddress;
  communicatorOptions.transport = "tcp";
  communicatorOptions.schedule = options.schedule;
  communicatorOptions.ctl = false;
  communicatorOptions.emulatedLinkBytesPerSecond = options.emulatedLinkBytesPerSecond;
  if (const char* secret = std::getenv(kSecretVariable)) communicatorOptions.secret = secret;
  auto communicator = Communicator::create(communicatorOptions);
  if (!communicator) {
    fmt::print(stderr, "rank {}: {}\n", options.rank, communicator.error().message);
    return 1;
  }
  TheseusLibrary library(std::move(*communicator));
  return serveStream(library, StreamOptions{options.rank, options.size, options.bytes});
}

}  // namespace theseus::demo
