// The rival: the demonstration's stream of allReduce calls through Gloo's tcp transport. Speaks the same
// protocol on its standard input and output as a worker of the demonstration, so both are paced, timed and
// checked by the same code.
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "demo_stream.h"

/// Gloo leaves its sockets at the system's congestion control; Theseus sets its own. Both shall run the same:
/// this takes the place of the C library's socket() for the whole process.
static const char* congestionControl = "cubic";

extern "C" int socket(int domain, int type, int protocol) noexcept {
  const int descriptor = static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
  const bool stream =
      (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM && (domain == AF_INET || domain == AF_INET6);
  if (descriptor >= 0 && stream && congestionControl[0] != '\0') {
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, congestionControl,
                 static_cast<socklen_t>(std::strlen(congestionControl)));
  }
  return descriptor;
}

namespace {

using theseus::ErrorCode;
using theseus::fail;
using theseus::Result;
using theseus::Status;
using theseus::demo::StreamReport;

class GlooLibrary final : public theseus::demo::StreamLibrary {
 public:
  GlooLibrary(std::shared_ptr<gloo::Context> context, std::string algorithm)
      : context_(std::move(context)), algorithm_(std::move(algorithm)) {}

  Result<StreamReport> allReduce(float* values, std::size_t count) override {
    try {
      if (prepared_ != values) prepare(values, static_cast<int>(count));
      const auto start = std::chrono::steady_clock::now();
      if (classic_) {
        classic_->run();
      } else {
        runNew(values, count);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      return StreamReport{took.count(), "gloo " + algorithm_, calls_++, 0, 0};
    } catch (const std::exception& error) {
      return fail(ErrorCode::kTransport, fmt::format("gloo: {}", error.what()));
    }
  }

  Status emulateLinkRate(double) override {
    return fail(ErrorCode::kUnsupported, "Gloo's links cannot be emulated");
  }
  std::string statusJson() override { return "{}"; }
  std::string explainJson(std::size_t) override { return "{}"; }

 private:
  /// The classic algorithms bind their buffer once; the stream always gives the same.
  void prepare(float* values, int count) {
    const std::vector<float*> pointers{values};
    if (algorithm_ == "ring_chunked")
      classic_ = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, pointers, count);
    if (algorithm_ == "ring_classic")
      classic_ = std::make_unique<gloo::AllreduceRing<float>>(context_, pointers, count);
    if (algorithm_ == "halving_doubling") {
      classic_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, pointers, count);
    }
    prepared_ = values;
  }

  void runNew(float* values, std::size_t count) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm_ == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                               : gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(values, count);
    options.setReduceFunction([](void* sum, const void* left, const void* right, std::size_t elements) {
      gloo::sum<float>(sum, left, right, elements);
    });
    gloo::allreduce(options);
  }

  std::shared_ptr<gloo::Context> context_;
  std::string algorithm_;
  std::unique_ptr<gloo::Algorithm> classic_;
  float* prepared_ = nullptr;
  std::uint64_t calls_ = 0;
};

std::shared_ptr<gloo::Context> connect(int rank, int size, const std::string& address,
                                       const std::string& folder) {
  gloo::transport::tcp::attr attributes(address.c_str());
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  return context;
}

}  // namespace

int main(int argc, char** argv) {
  // Gloo allocates message-sized temporaries in each call: without this one would measure page faults.
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  theseus::demo::StreamOptions options;
  std::string address = "127.0.0.1";
  std::string folder;
  std::string algorithm = "ring";
  std::string control = congestionControl;
  CLI::App app{"allReduce through Gloo; commands on standard input: run N", "gloo_allreduce"};
  app.add_option("--rank", options.rank)->required();
  app.add_option("--size", options.size)->required();
  app.add_option("--bytes", options.bytes, "of each float32 allReduce")->required();
  app.add_option("--address", address, "numeric address of this rank");
  app.add_option("--store", folder, "folder in which the ranks meet; empty, theirs alone")->required();
  app.add_option("--congestion", control, "TCP congestion control; empty: the system's");
  app.add_option("--algorithm", algorithm)
      ->check(CLI::IsMember({"ring", "bcube", "ring_chunked", "ring_classic", "halving_doubling"}));
  CLI11_PARSE(app, argc, argv);
  congestionControl = control.c_str();
  try {
    GlooLibrary library(connect(options.rank, options.size, address, folder), algorithm);
    return theseus::demo::serveStream(library, options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gloo rank {}: {}\n", options.rank, error.what());
    return 1;
  }
}
