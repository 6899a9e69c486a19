// Thin helpers over sockets for the rendezvous and the message mesh: addresses, listeners, non-blocking
// connections. A Descriptor is owned by whoever holds it. Everything else is pure functions, any thread.
// resolve() may ask a name server and take as long as that takes.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/posix/descriptor.h"
#include "theseus/options.h"
#include "theseus/result.h"

namespace theseus::runtime {

using Descriptor = drivers::FileDescriptor;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int port() const;
  void setPort(int port);
  bool isLoopback() const;
};

/// Addresses of `host`, a name or a number; never empty.
Result<std::vector<SocketAddress>> resolve(const std::string& host, int port);
/// Numeric addresses only; no name server is asked.
Result<SocketAddress> parseNumericAddress(const std::string& host, int port);
/// "10.0.0.1:80" or "[fe80::1]:80".
Result<SocketAddress> parseEndpointText(std::string_view text);
std::string endpointText(const SocketAddress& address);
/// The number alone, without the port.
std::string hostText(const SocketAddress& address);

/// A non-blocking listener. nullopt: the port is in use by another program.
Result<std::optional<Descriptor>> listenOn(const SocketAddress& address);
SocketAddress localAddress(const Descriptor& socket);
SocketAddress peerAddress(const Descriptor& socket);

/// A non-blocking connection under way; done when the socket is writable, then connectError() says how it
/// went.
Result<Descriptor> startConnect(const SocketAddress& address);
/// 0 = connected; otherwise an errno.
int connectError(const Descriptor& socket);

/// One accepted connection, non-blocking. nullopt: nobody is waiting. An error means that the process is out
/// of descriptors or memory.
Result<std::optional<Descriptor>> acceptOne(const Descriptor& listener);

/// A broken host is noticed: unacknowledged data and silence of the peer's kernel end the connection after
/// about `bound`.
void setDeadPeerBound(const Descriptor& socket, std::chrono::milliseconds bound);

/// Where this rank's own listeners bind, and the numeric address under which the other ranks reach them:
/// options.bindAddress if set, else the address of the route to the master; when that is a loopback although
/// the master was not given as one (a host whose name means 127.0.1.1), the host's first other address.
struct OwnAddress {
  std::string bind;       // numeric; may mean all interfaces
  std::string advertise;  // numeric
};
Result<OwnAddress> chooseOwnAddress(const CommunicatorOptions& options);

/// "127.0.0.1", "::1", "localhost": a job that never leaves its host.
bool namesLoopback(const std::string& host);

}  // namespace theseus::runtime
