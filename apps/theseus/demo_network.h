// A small shaped network on one machine: one network namespace for each rank, joined by veth pairs and a
// bridge in one more namespace, with a token bucket on both ends of each link. The namespaces have no names:
// they live as long as this object's descriptors (and the processes inside), so nothing is left behind
// however the program ends, and the machine's own network is never touched. Owned by the demonstration's
// parent process; one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "theseus/result.h"

namespace theseus::demo {

/// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  int value() const { return value_; }
  void reset();

 private:
  int value_ = -1;
};

class DemoNetwork {
 public:
  static constexpr int kMaxRanks = 64;

  /// Needs root. Errors say which command failed and what it printed.
  static Result<std::unique_ptr<DemoNetwork>> create(int ranks, double megabitsPerSecond);

  /// Both directions of the rank's link.
  Status setRate(int rank, double megabitsPerSecond);
  std::string address(int rank) const;
  /// For setns(); valid as long as this object.
  int namespaceDescriptor(int rank) const { return ranks_[static_cast<std::size_t>(rank)].value(); }

 private:
  DemoNetwork() = default;
  Status joinRank(int rank);

  Descriptor hub_;
  std::vector<Descriptor> ranks_;
};

/// Whether this process may make network namespaces at all (root, and the kernel lets it).
bool canMakeNamespaces();

}  // namespace theseus::demo
