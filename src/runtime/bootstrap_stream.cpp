#include "runtime/bootstrap_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"

namespace theseus::runtime {
namespace {

constexpr std::size_t kHeaderBytes = 5;
constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kReadsPerFill = 16;          // then others get their turn
constexpr std::size_t kCoalesceBytes = 64 * 1024;  // small frames share one write up to this size

}  // namespace

void FramedStream::queueRaw(std::string bytes) {
  if (bytes.empty()) return;
  queuedBytes_ += bytes.size();
  if (!output_.empty() && output_.back().size() + bytes.size() <= kCoalesceBytes) {
    output_.back() += bytes;
  } else {
    output_.push_back(std::move(bytes));
  }
}

void FramedStream::queueFrame(std::uint8_t kind, std::string payload) {
  THESEUS_CHECK(payload.size() <= payloadBytesMax_, "the caller checks the size of a frame");
  const auto length = static_cast<std::uint32_t>(payload.size());
  std::string header;
  for (int shift = 0; shift < 32; shift += 8) header.push_back(static_cast<char>(length >> shift));
  header.push_back(static_cast<char>(kind));
  queueRaw(std::move(header));
  queueRaw(std::move(payload));
}

Status FramedStream::flush() {
  while (!output_.empty()) {
    const std::string& front = output_.front();
    const ssize_t sent = ::send(socket_.get(), front.data() + sentOfFront_, front.size() - sentOfFront_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return fail(ErrorCode::kTransport, fmt::format("sending failed: {}", std::strerror(errno)));
    }
    sentOfFront_ += static_cast<std::size_t>(sent);
    queuedBytes_ -= static_cast<std::size_t>(sent);
    if (sentOfFront_ == front.size()) {
      output_.pop_front();
      sentOfFront_ = 0;
    }
  }
  return {};
}

Result<bool> FramedStream::fill() {
  if (consumed_ > 0) {
    input_.erase(0, consumed_);
    consumed_ = 0;
  }
  char chunk[kReadBytes];
  for (std::size_t reads = 0; reads < kReadsPerFill; ++reads) {
    const ssize_t received = ::recv(socket_.get(), chunk, sizeof(chunk), MSG_DONTWAIT);
    if (received > 0) {
      input_.append(chunk, static_cast<std::size_t>(received));
      if (static_cast<std::size_t>(received) < sizeof(chunk)) return true;
      continue;
    }
    if (received == 0) return false;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    return fail(ErrorCode::kTransport, fmt::format("receiving failed: {}", std::strerror(errno)));
  }
  return true;
}

Result<std::optional<Frame>> FramedStream::nextFrame() {
  const std::string_view rest = std::string_view(input_).substr(consumed_);
  if (rest.size() < kHeaderBytes) return std::optional<Frame>();
  std::uint32_t length = 0;
  for (int i = 0; i < 4; ++i)
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
  if (length > payloadBytesMax_) {
    return fail(
        ErrorCode::kTransport,
        fmt::format("a frame of {} bytes was announced, at most {} are allowed", length, payloadBytesMax_));
  }
  if (rest.size() < kHeaderBytes + length) return std::optional<Frame>();
  consumed_ += kHeaderBytes + length;
  return std::optional<Frame>(Frame{static_cast<std::uint8_t>(rest[4]), rest.substr(kHeaderBytes, length)});
}

void FramedStream::closeSending() {
  (void)flush();
  ::shutdown(socket_.get(), SHUT_WR);
  char chunk[4096];
  // Bounded: a peer that keeps sending does not keep us.
  for (int reads = 0; reads < 256; ++reads) {
    if (::recv(socket_.get(), chunk, sizeof(chunk), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace theseus::runtime
