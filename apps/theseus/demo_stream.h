// The worker's side of the demonstration: a stream of float32 allReduce calls, commanded in lines, each
// result checked in every element. Commands: "prepare N" (make the input of collective N) · "go" (run it now)
// · "run N" (N collectives by itself) · "rate X" (emulated link, bytes/s) · "status" · end of input. Replies
// are JSON lines. The same loop serves Theseus and its rivals. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "theseus/result.h"

namespace theseus::demo {

/// What one collective did on this rank.
struct StreamReport {
  double seconds = 0;  // from the call to its completion
  std::string schedule;
  std::uint64_t sequence = 0;
  std::uint64_t round = 0;
  double limitWaitSeconds = 0;
};

/// A library that can sum.
class StreamLibrary {
 public:
  virtual ~StreamLibrary() = default;
  /// In-place sum over all ranks.
  virtual Result<StreamReport> allReduce(float* values, std::size_t count) = 0;
  virtual Status emulateLinkRate(double bytesPerSecond) = 0;
  /// Its state, and why a call of `bytes` runs as it does; each one JSON value without line breaks.
  virtual std::string statusJson() = 0;
  virtual std::string explainJson(std::size_t bytes) = 0;
};

struct StreamOptions {
  int rank = 0;
  int size = 1;
  std::size_t bytes = 0;
};

/// Serves commands from standard input until it ends. Exit code of the process: 0, or 1 after an error
/// (written to standard error).
int serveStream(StreamLibrary& library, const StreamOptions& options);

}  // namespace theseus::demo
