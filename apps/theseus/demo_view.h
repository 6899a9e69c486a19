// How the demonstration shows itself while it runs: plain lines, or a small picture that is redrawn in place
// on a terminal. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "demo_team.h"

namespace theseus::demo {

struct ViewOptions {
  int ranks = 0;
  std::uint64_t bytes = 0;
  double megabitsPerSecond = 0;
  bool emulated = false;
};

class DemoView {
 public:
  virtual ~DemoView() = default;
  /// `library` is "theseus" or the rival's name.
  virtual void collective(const std::string& library, const std::string& phase,
                          const CollectiveOutcome& outcome) = 0;
  /// Something happened: a link changed, the runtime swapped.
  virtual void event(const std::string& text) = 0;
  virtual void linkRate(int rank, double megabitsPerSecond) = 0;
};

/// The live view when standard output is a terminal, plain lines otherwise.
std::unique_ptr<DemoView> makeView(const ViewOptions& options);
std::unique_ptr<DemoView> makePlainView(const ViewOptions& options);
std::unique_ptr<DemoView> makeLiveView(const ViewOptions& options);

/// Bus bandwidth of an allReduce as nccl-tests defines it, GB/s.
double busBandwidth(std::uint64_t bytes, int ranks, double seconds);

}  // namespace theseus::demo
