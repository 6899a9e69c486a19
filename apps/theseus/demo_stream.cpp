#include "demo_stream.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "demo_message.h"
#include "demo_pattern.h"

namespace theseus::demo {
namespace {

constexpr std::size_t kHugePage = 2 << 20;

struct FreeMemory {
  void operator()(float* memory) const { std::free(memory); }
};
using Values = std::unique_ptr<float[], FreeMemory>;

/// First touch of small pages costs more than the collective itself.
Values allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, rounded);
  if (memory != nullptr) ::madvise(memory, rounded, MADV_HUGEPAGE);
  return Values(static_cast<float*>(memory));
}

class Stream {
 public:
  Stream(StreamLibrary& library, const StreamOptions& options)
      : library_(library),
        options_(options),
        count_(options.bytes / sizeof(float)),
        values_(allocate(options.bytes)) {}

  bool hasMemory() const { return values_ != nullptr; }

  Status serve(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string verb = line.substr(0, space);
    const std::string operand = space == std::string::npos ? "" : line.substr(space + 1);
    if (verb == "prepare") return prepare(std::strtoull(operand.c_str(), nullptr, 10));
    if (verb == "go") return go();
    if (verb == "run") return run(std::strtoull(operand.c_str(), nullptr, 10));
    if (verb == "rate") return library_.emulateLinkRate(std::strtod(operand.c_str(), nullptr));
    if (verb == "status") {
      write(fmt::format(R"({{"event":"status","rank":{},"status":{},"explain":{}}})", options_.rank,
                        library_.statusJson(), library_.explainJson(options_.bytes)));
      return {};
    }
    return fail(ErrorCode::kInvalidArgument, fmt::format("unknown command '{}'", line));
  }

  void write(const std::string& line) {
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
  }

 private:
  Status prepare(std::uint64_t collective) {
    collective_ = collective;
    fillPattern(values_.get(), count_, options_.rank, collective);
    write(fmt::format(R"({{"event":"prepared","rank":{},"collective":{}}})", options_.rank, collective));
    return {};
  }

  Status go() {
    auto report = library_.allReduce(values_.get(), count_);
    if (!report) return fail(report.error());
    const std::uint64_t wrong = countWrong(values_.get(), count_, options_.size, collective_);
    write(fmt::format(R"({{"event":"done","rank":{},"collective":{},"seconds":{:.9f},"schedule":{},)"
                      R"("sequence":{},"round":{},"limit_wait":{:.9f},"wrong":{}}})",
                      options_.rank, collective_, report->seconds, quoteJson(report->schedule),
                      report->sequence, report->round, report->limitWaitSeconds, wrong));
    return {};
  }

  Status run(std::uint64_t collectives) {
    for (std::uint64_t i = 0; i < collectives; ++i) {
      if (auto status = prepare(collective_ + 1); !status) return status;
      if (auto status = go(); !status) return status;
    }
    return {};
  }

  StreamLibrary& library_;
  StreamOptions options_;
  std::size_t count_;
  Values values_;
  std::uint64_t collective_ = 0;
};

}  // namespace

int serveStream(StreamLibrary& library, const StreamOptions& options) {
  Stream stream(library, options);
  if (!stream.hasMemory()) {
    fmt::print(stderr, "rank {}: no memory for {} bytes\n", options.rank, options.bytes);
    return 1;
  }
  stream.write(fmt::format(R"({{"event":"ready","rank":{}}})", options.rank));
  std::string line;
  while (std::getline(std::cin, line)) {
    if (auto status = stream.serve(line); !status) {
      fmt::print(stderr, "rank {}: {}\n", options.rank, status.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace theseus::demo
