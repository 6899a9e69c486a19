#include "drivers/posix/socket.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

namespace theseus::drivers {
namespace {

constexpr int kBacklog = 1024;
constexpr std::size_t kDescriptorsMax = 8;

bool wouldBlock(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

}  // namespace

Result<SocketAddress> SocketAddress::parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  std::uint16_t port = 0;
  const char* begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1);
  const char* end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(begin, end, port);
  const bool portGood = begin != end && code == std::errc() && rest == end && port != 0;
  if (!portGood || host.empty() || (host.find(':') != std::string::npos && !bracketed))
    return fail(ErrorCode::kInvalidArgument,
                "\"" + text + "\" is no address: write 10.0.0.1:4000 or [fe80::1]:4000");
  return numeric(host, port);
}

Result<SocketAddress> SocketAddress::numeric(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0)
    return fail(ErrorCode::kInvalidArgument,
                "\"" + host + "\" is no numeric IP address: " + std::string(::gai_strerror(code)));
  SocketAddress address;
  std::memcpy(&address.storage_, found->ai_addr, found->ai_addrlen);
  address.length_ = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

Result<SocketAddress> SocketAddress::abstractUnix(const std::string& name) {
  sockaddr_un unixAddress{};
  unixAddress.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof(unixAddress.sun_path))
    return fail(ErrorCode::kInvalidArgument,
                "\"" + name + "\" is no name for a unix socket: 1 to 107 characters");
  std::memcpy(unixAddress.sun_path + 1, name.data(), name.size());
  SocketAddress address;
  std::memcpy(&address.storage_, &unixAddress, sizeof(unixAddress));
  address.length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<SocketAddress> SocketAddress::localOf(const FileDescriptor& socket) {
  SocketAddress address;
  address.length_ = sizeof(address.storage_);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage_), &address.length_) != 0)
    return failSystem("getsockname", errno);
  return address;
}

SocketAddress SocketAddress::remoteOf(const FileDescriptor& socket) {
  SocketAddress address;
  address.length_ = sizeof(address.storage_);
  // A peer that has left already has no name any more; text() then says so.
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address.storage_), &address.length_) != 0)
    return SocketAddress{};
  return address;
}

std::string SocketAddress::text() const {
  if (family() == AF_UNIX) {
    const auto* unixAddress = reinterpret_cast<const sockaddr_un*>(&storage_);
    const std::size_t start = offsetof(sockaddr_un, sun_path) + 1;
    if (length_ <= start) return "a unix socket";
    return "@" + std::string(unixAddress->sun_path + 1, length_ - start);
  }
  char host[NI_MAXHOST];
  char service[NI_MAXSERV];
  if (length_ == 0 || ::getnameinfo(raw(), length_, host, sizeof(host), service, sizeof(service),
                                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  const std::string shown = isIpv6() ? "[" + std::string(host) + "]" : std::string(host);
  return shown + ":" + service;
}

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

Result<FileDescriptor> listenOn(const SocketAddress& address) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return failSystem("socket for " + address.text(), errno);
  const int on = 1;
  if (address.family() != AF_UNIX)
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), address.raw(), address.length()) != 0)
    return failSystem("bind to " + address.text(), errno);
  if (::listen(socket.get(), kBacklog) != 0) return failSystem("listen on " + address.text(), errno);
  return socket;
}

Result<std::optional<FileDescriptor>> acceptOne(const FileDescriptor& listener) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) return std::optional<FileDescriptor>(std::move(socket));
  if (wouldBlock(errno)) return std::optional<FileDescriptor>();
  return failSystem("accept", errno);
}

Result<FileDescriptor> startConnect(const SocketAddress& address) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return failSystem("socket for " + address.text(), errno);
  if (::connect(socket.get(), address.raw(), address.length()) != 0 && errno != EINPROGRESS && errno != EINTR)
    return failSystem("connect to " + address.text(), errno, ErrorCode::kTransport);
  return socket;
}

Status connectOutcome(const FileDescriptor& socket) {
  int code = 0;
  socklen_t length = sizeof(code);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &length) != 0) code = errno;
  if (code != 0) return failSystem("connect", code, ErrorCode::kTransport);
  return {};
}

Result<Transfer> sendGathered(const FileDescriptor& socket, std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return Transfer{.bytes = static_cast<std::size_t>(sent)};
  if (wouldBlock(errno)) return Transfer{.blocked = true};
  return failSystem("send", errno, ErrorCode::kTransport);
}

Result<Transfer> receiveScattered(const FileDescriptor& socket, std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_DONTWAIT);
  if (got > 0) return Transfer{.bytes = static_cast<std::size_t>(got)};
  if (got == 0) return Transfer{.ended = true};
  if (wouldBlock(errno)) return Transfer{.blocked = true};
  return failSystem("receive", errno, ErrorCode::kTransport);
}

Status sendDescriptors(const FileDescriptor& socket, std::span<const std::byte> bytes,
                       std::span<const int> descriptors) {
  if (descriptors.size() > kDescriptorsMax)
    return fail(ErrorCode::kInvalidArgument, "at most 8 descriptors a message");
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  const ssize_t sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return failSystem("sending descriptors", errno, ErrorCode::kTransport);
  if (static_cast<std::size_t>(sent) != bytes.size())
    return fail(ErrorCode::kTransport, "a fresh unix socket took only part of a short message");
  return {};
}

Result<ReceivedDescriptors> receiveDescriptors(const FileDescriptor& socket, std::span<std::byte> bytes) {
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  ReceivedDescriptors received;
  if (got < 0 && wouldBlock(errno)) {
    received.transfer.blocked = true;
    return received;
  }
  if (got < 0) return failSystem("receiving descriptors", errno, ErrorCode::kTransport);
  received.transfer.bytes = static_cast<std::size_t>(got);
  received.transfer.ended = got == 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int value = -1;
      std::memcpy(&value, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      received.descriptors.emplace_back(value);
    }
  }
  return received;
}

}  // namespace theseus::drivers
