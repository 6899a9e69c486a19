// Collects findings of the verifier's passes. Internal to verify/; one thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "schedule/verify/verify.h"

namespace theseus::schedule::verifying {

/// The findings of one verification, at most `limit` of them. An identical (kind, place, second) is kept
/// once, because the dynamic passes look at several message sizes.
class Report {
 public:
  explicit Report(std::size_t limit) : limit_(limit) {}

  void add(Finding finding) {
    for (const Finding& known : findings_) {
      if (known.kind == finding.kind && known.place == finding.place && known.second == finding.second)
        return;
    }
    if (findings_.size() < limit_) findings_.push_back(std::move(finding));
  }
  bool full() const { return findings_.size() >= limit_; }
  bool empty() const { return findings_.empty(); }
  std::vector<Finding> take() && { return std::move(findings_); }

 private:
  std::size_t limit_;
  std::vector<Finding> findings_;
};

}  // namespace theseus::schedule::verifying
