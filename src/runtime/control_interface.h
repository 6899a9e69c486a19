// What `theseus ctl` can ask of a running rank. Implemented by the communicator, called by the HTTP server's
// threads: every method is safe on any thread and bounded in time.
#pragma once

#include <cstdint>
#include <string>

#include "theseus/result.h"
#include "theseus/types.h"

namespace theseus::runtime {

class ControlInterface {
 public:
  virtual ~ControlInterface() = default;
  virtual std::string statusJson() const = 0;
  virtual std::string explainJson(Collective collective, std::uint64_t bytes) const = 0;
  virtual Result<std::string> newSched(const std::string& text) = 0;
  virtual Status dropSched(const std::string& schedule) = 0;
  virtual Status swap(Collective collective, const std::string& schedule) = 0;
  virtual Status setExo(const std::string& name, const std::string& value) = 0;
  virtual std::string metricsText() const = 0;  // Prometheus text exposition
};

}  // namespace theseus::runtime
