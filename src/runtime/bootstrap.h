// How ranks find each other: rank 0 listens at masterAddress:masterPort, everyone proves knowledge of the
// job's secret (challenge and response, HMAC-SHA-256) and exchanges one blob. Used once by
// Communicator::create; blocking, bounded by the time-out.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "theseus/options.h"
#include "theseus/result.h"

namespace theseus::runtime {

/// All-to-all exchange of one blob per rank. Implementations: TCP to rank 0; in-process (LocalJob).
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Every rank gives its blob and gets all, by rank. `tag` names the exchange; ranks call in the same order.
  /// Errors name missing ranks.
  virtual Result<std::vector<std::string>> exchange(const std::string& tag, std::string blob) = 0;
};

/// Connects to the job. Strangers that reach rank 0's port are dropped and logged; the job goes on. Two ranks
/// that claim the same number, or different sizes, are errors that say so.
Result<std::unique_ptr<Rendezvous>> makeTcpRendezvous(const CommunicatorOptions& options);
std::unique_ptr<Rendezvous> makeLocalRendezvous(std::shared_ptr<LocalJob> job, int rank,
                                                std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace theseus::runtime
