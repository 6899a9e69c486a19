// Nonblocking stream sockets, TCP and unix: each function is one system call, or the few that belong
// together, as a Result. Stateless; any thread, one at a time for each socket.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "drivers/posix/descriptor.h"
#include "theseus/result.h"

namespace theseus::drivers {

/// An IPv4, IPv6 or abstract unix address. Plain value.
class SocketAddress {
 public:
  /// "10.0.0.1:4000" or "[fe80::1%eth0]:4000"; numeric only, since a name may mean another machine elsewhere.
  static Result<SocketAddress> parse(const std::string& text);
  static Result<SocketAddress> numeric(const std::string& host, std::uint16_t port);
  /// A unix socket without a name in the file system; it goes with its last user.
  static Result<SocketAddress> abstractUnix(const std::string& name);
  static Result<SocketAddress> localOf(const FileDescriptor& socket);
  static SocketAddress remoteOf(const FileDescriptor& socket);

  std::string text() const;
  std::uint16_t port() const;
  bool isIpv6() const { return storage_.ss_family == AF_INET6; }
  int family() const { return storage_.ss_family; }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }

 private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

Result<FileDescriptor> listenOn(const SocketAddress& address);
/// Nothing if nobody waits.
Result<std::optional<FileDescriptor>> acceptOne(const FileDescriptor& listener);
/// Begins; writable when it is over, then connectOutcome() tells how.
Result<FileDescriptor> startConnect(const SocketAddress& address);
Status connectOutcome(const FileDescriptor& socket);

/// What one nonblocking transfer did.
struct Transfer {
  std::size_t bytes = 0;
  bool blocked = false;  // the kernel has no room, or nothing yet
  bool ended = false;    // reading: the other side will send no more
};
Result<Transfer> sendGathered(const FileDescriptor& socket, std::span<const iovec> pieces);
Result<Transfer> receiveScattered(const FileDescriptor& socket, std::span<const iovec> pieces);

/// Unix sockets only: bytes with descriptors attached. `bytes` must not be empty.
Status sendDescriptors(const FileDescriptor& socket, std::span<const std::byte> bytes,
                       std::span<const int> descriptors);
struct ReceivedDescriptors {
  Transfer transfer;
  std::vector<FileDescriptor> descriptors;
};
/// Accepts at most 8 descriptors with the bytes.
Result<ReceivedDescriptors> receiveDescriptors(const FileDescriptor& socket, std::span<std::byte> bytes);

/// Options of a TCP connection that a bulk transfer with low latency wants.
struct TcpTuning {
  std::string congestionControl;  // tried; a kernel without it keeps its default
  std::uint32_t unsentBytesMax =
      0;  // the kernel takes no more while this much waits unsent (TCP_NOTSENT_LOWAT)
};
Status tuneTcp(const FileDescriptor& socket, const TcpTuning& tuning);

/// What the kernel knows of a connection's sending side.
struct TcpFlowState {
  std::uint64_t acknowledgedBytes = 0;
  std::uint32_t unsentBytes = 0;         // written but never sent: they wait for the link
  base::Nanoseconds receiverLimited{0};  // time for which the receiver's window held the sender back
};
Result<TcpFlowState> tcpFlowState(const FileDescriptor& socket);

}  // namespace theseus::drivers
