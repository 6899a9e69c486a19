#include "runtime/bootstrap_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

namespace theseus::runtime {
namespace {

std::string errnoText(int number) { return std::strerror(number); }

void setInteger(int socket, int level, int option, int value) {
  // Tuning only: a kernel without the option leaves a connection that works.
  (void)::setsockopt(socket, level, option, &value, sizeof(value));
}

Result<std::vector<SocketAddress>> lookUp(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string service = std::to_string(port);
  const int outcome = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  if (outcome != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot resolve the address \"{}\": {}", host, ::gai_strerror(outcome)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  if (addresses.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the address \"{}\" has no IPv4 or IPv6 form", host));
  }
  return addresses;
}

std::optional<std::string> firstOutsideAddress(int family) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::nullopt;
  std::optional<std::string> found;
  for (const ifaddrs* entry = list; entry != nullptr && !found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    const bool linkLocal =
        family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
    if (!address.isLoopback() && !linkLocal) found = hostText(address);
  }
  ::freeifaddrs(list);
  return found;
}

/// The local address that the kernel would use towards `target`; connecting a datagram socket sends nothing.
Result<SocketAddress> routeSource(const SocketAddress& target) {
  Descriptor socket(::socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::connect(socket.get(), target.get(), target.length) != 0) {
    return fail(ErrorCode::kIo,
                fmt::format("no route to the master at {}: {}", endpointText(target), errnoText(errno)));
  }
  return localAddress(socket);
}

}  // namespace

int SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

void SocketAddress::setPort(int port) {
  const in_port_t value = htons(static_cast<in_port_t>(port));
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = value;
  } else {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = value;
  }
}

bool SocketAddress::isLoopback() const {
  if (storage.ss_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* address = &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, int port) {
  return lookUp(host, port, 0);
}

Result<SocketAddress> parseNumericAddress(const std::string& host, int port) {
  auto addresses = lookUp(host, port, AI_NUMERICHOST);
  if (!addresses) return fail(addresses.error());
  return addresses->front();
}

Result<SocketAddress> parseEndpointText(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not HOST:PORT", text));
  }
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string_view digits = text.substr(colon + 1);
  int port = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || port < 1 || port > 65535) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" has no port between 1 and 65535", text));
  }
  return parseNumericAddress(std::string(host), port);
}

std::string hostText(const SocketAddress& address) {
  char text[NI_MAXHOST] = "?";
  if (::getnameinfo(address.get(), address.length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  return text;
}

std::string endpointText(const SocketAddress& address) {
  if (address.length == 0) return "(unknown)";
  if (address.storage.ss_family == AF_INET6) return fmt::format("[{}]:{}", hostText(address), address.port());
  return fmt::format("{}:{}", hostText(address), address.port());
}

Result<std::optional<Descriptor>> listenOn(const SocketAddress& address) {
  constexpr int kBacklog = 4096;  // a burst of strangers must not push the ranks of the job out of the queue
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return fail(ErrorCode::kIo, fmt::format("cannot create a socket: {}", errnoText(errno)));
  }
  setInteger(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) setInteger(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.get(), address.length) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) return std::optional<Descriptor>();
    return fail(ErrorCode::kIo,
                fmt::format("cannot listen at {}: {}", endpointText(address), errnoText(errno)));
  }
  return std::optional<Descriptor>(std::move(socket));
}

SocketAddress localAddress(const Descriptor& socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (::getsockname(socket.get(), address.get(), &address.length) != 0) address.length = 0;
  return address;
}

SocketAddress peerAddress(const Descriptor& socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (::getpeername(socket.get(), address.get(), &address.length) != 0) address.length = 0;
  return address;
}

Result<Descriptor> startConnect(const SocketAddress& address) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return fail(ErrorCode::kIo, fmt::format("cannot create a socket: {}", errnoText(errno)));
  }
  setInteger(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(socket.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return fail(ErrorCode::kTransport,
                fmt::format("cannot connect to {}: {}", endpointText(address), errnoText(errno)));
  }
  return socket;
}

int connectError(const Descriptor& socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

Result<std::optional<Descriptor>> acceptOne(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) {
    setInteger(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    return std::optional<Descriptor>(std::move(socket));
  }
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    return fail(ErrorCode::kIo, fmt::format("cannot accept a connection: {}", errnoText(errno)));
  }
  return std::optional<Descriptor>();  // nobody, or someone who has gone again
}

void setDeadPeerBound(const Descriptor& socket, std::chrono::milliseconds bound) {
  const int milliseconds = static_cast<int>(std::clamp<std::int64_t>(bound.count(), 1000, 3'600'000));
  setInteger(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds);
  setInteger(socket.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  const int seconds = std::max(1, milliseconds / 4000);
  setInteger(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  setInteger(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  setInteger(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool namesLoopback(const std::string& host) {
  if (host == "localhost") return true;
  const auto address = parseNumericAddress(host, 0);
  return address && address->isLoopback();
}

Result<OwnAddress> chooseOwnAddress(const CommunicatorOptions& options) {
  if (!options.bindAddress.empty()) {
    auto own = parseNumericAddress(options.bindAddress, 0);
    if (!own) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("bindAddress \"{}\" is not a numeric address", options.bindAddress));
    }
    const std::string text = hostText(*own);
    if (text != "0.0.0.0" && text != "::") return OwnAddress{text, text};
  }
  auto master = resolve(options.masterAddress, options.masterPort);
  if (!master) return fail(master.error());
  auto source = routeSource(master->front());
  if (!source) return fail(source.error());
  const bool v6 = source->storage.ss_family == AF_INET6;
  OwnAddress own{options.bindAddress, hostText(*source)};
  if (source->isLoopback() && !namesLoopback(options.masterAddress)) {
    own.advertise = firstOutsideAddress(source->storage.ss_family).value_or(own.advertise);
    if (own.bind.empty()) own.bind = v6 ? "::" : "0.0.0.0";
  }
  if (own.bind.empty()) own.bind = own.advertise;
  return own;
}

}  // namespace theseus::runtime
