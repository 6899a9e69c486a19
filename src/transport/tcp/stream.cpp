#include "transport/tcp/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "drivers/posix/socket.h"
#include "transport/ring_channel.h"
#include "transport/tcp/channel.h"
#include "transport/tcp/goodbye.h"

namespace theseus::transport {
namespace {

/// What one stream may take from the kernel in one call of progress(), so that no peer starves the others.
constexpr std::size_t kBytesPerTurn = 1024 * 1024;

}  // namespace

TcpStream::~TcpStream() {
  if (!closed_) sayGoodbye(socket_);
}

void TcpStream::onEvent(const drivers::PollEvent& event) {
  readable_ = readable_ || event.readable;
  hangUp_ = hangUp_ || event.hangUp;
}

Status TcpStream::ended(const std::string& how) {
  closed_ = true;
  socket_.close();
  const bool clean = !inPayload_ && !haveHeader_ && stagedFrom_ == stagedTo_;
  return fail(
      ErrorCode::kTransport,
      fmt::format("rank {} ended without a goodbye{} (crashed, killed or cut off?): {}; see its own output",
                  from_, clean ? "" : ", in the middle of a segment", how));
}

Status TcpStream::place(InboundHandler& handler) {
  Result<Placement> placement = handler.onHeader(from_, header_);
  if (!placement) return fail(std::move(placement.error()));
  parked_ = placement->later;
  if (parked_) return {};
  haveHeader_ = false;
  inPayload_ = true;
  destination_ = placement->destination;
  remaining_ = header_.bytes;
  return {};
}

/// True if there was a header to take.
Result<bool> TcpStream::takeHeader(InboundHandler& handler) {
  if (!haveHeader_) {
    if (stagedTo_ - stagedFrom_ < sizeof(header_)) return false;
    std::memcpy(&header_, staging_.data() + stagedFrom_, sizeof(header_));
    stagedFrom_ += sizeof(header_);
    if (header_.magic == kGoodbyeMagic) {
      closed_ = true;
      socket_.close();
      return false;
    }
    haveHeader_ = true;
    THESEUS_TRY(checkHeader(from_, header_));
  }
  THESEUS_TRY(place(handler));
  return !parked_;
}

Status TcpStream::consumeStaging(InboundHandler& handler) {
  while (!parked_ && !closed_) {
    if (!inPayload_) {
      Result<bool> taken = takeHeader(handler);
      if (!taken) return fail(std::move(taken.error()));
      if (!*taken) break;
    }
    const std::size_t piece = std::min(remaining_, stagedTo_ - stagedFrom_);
    if (piece > 0) std::memcpy(destination_, staging_.data() + stagedFrom_, piece);
    stagedFrom_ += piece;
    destination_ += piece;
    remaining_ -= piece;
    if (remaining_ > 0) break;
    inPayload_ = false;
    THESEUS_TRY(handler.onDelivered(from_, header_));
  }
  return {};
}

/// The rest of the payload goes to its destination, what follows it to the staging buffer, in one system
/// call.
Status TcpStream::receive(std::size_t& received) {
  std::memmove(staging_.data(), staging_.data() + stagedFrom_, stagedTo_ - stagedFrom_);
  stagedTo_ -= stagedFrom_;
  stagedFrom_ = 0;
  const std::array<iovec, 2> pieces = {iovec{destination_, inPayload_ ? remaining_ : 0},
                                       iovec{staging_.data() + stagedTo_, kStagingBytes - stagedTo_}};
  const std::size_t asked = pieces[0].iov_len + pieces[1].iov_len;
  Result<drivers::Transfer> got = drivers::receiveScattered(socket_, pieces);
  received = 0;
  if (!got) return ended(got.error().message);
  if (got->ended) return ended("end of stream");
  // Less than asked: the kernel has no more, and the next arrival makes a new event; a hang-up has had its
  // event already.
  if (got->blocked || (got->bytes < asked && !hangUp_)) readable_ = false;
  received = got->bytes;
  const std::size_t direct = std::min(got->bytes, pieces[0].iov_len);
  if (inPayload_) {
    destination_ += direct;
    remaining_ -= direct;
  }
  stagedTo_ += got->bytes - direct;
  return {};
}

Result<bool> TcpStream::progress(InboundHandler& handler) {
  bool moved = false;
  std::size_t total = 0;
  while (canMove() && total < kBytesPerTurn) {
    if (haveHeader_) {
      THESEUS_TRY(consumeStaging(handler));
      moved = moved || !parked_;
      continue;
    }
    std::size_t received = 0;
    THESEUS_TRY(receive(received));
    if (received == 0) break;
    total += received;
    moved = true;
    if (inPayload_ && remaining_ == 0) {
      inPayload_ = false;
      THESEUS_TRY(handler.onDelivered(from_, header_));
    }
    THESEUS_TRY(consumeStaging(handler));
  }
  return moved;
}

}  // namespace theseus::transport
