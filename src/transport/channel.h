// A one-way pipe to one peer: ordered, reliable, non-blocking. Owned by its Endpoint; used only by the thread
// that drives the endpoint.
#pragma once

#include <cstddef>
#include <cstdint>

#include "theseus/result.h"
#include "transport/segment.h"

namespace theseus::transport {

class Channel {
 public:
  virtual ~Channel() = default;

  /// Offers one segment. True: accepted; the header was copied, `payload` (header.bytes long, may be null
  /// when that is 0) must stay valid and unchanged until completed() reaches the value that accepted() has
  /// now. False: no room, offer again after progress. Errors: the peer is gone.
  virtual Result<bool> put(const SegmentHeader& header, const std::byte* payload) = 0;

  /// False while the connection is still being made; put() accepts nothing before.
  bool open() const { return open_; }

  /// Segments accepted so far, and segments whose payload is no longer needed. completed() <= accepted().
  std::uint64_t accepted() const { return accepted_; }
  std::uint64_t completed() const { return completed_; }

 protected:
  std::uint64_t accepted_ = 0;
  std::uint64_t completed_ = 0;
  bool open_ = true;
};

}  // namespace theseus::transport
