// Serves a rank's ControlInterface to `theseus ctl` over HTTP: a unix socket that only its owner can open,
// and TCP only with a token. Owned by the communicator; started and destroyed on one thread; its own threads
// call the interface. Builds without the HTTP library have no server.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "runtime/control_interface.h"
#include "theseus/options.h"
#include "theseus/result.h"

namespace theseus::runtime {

class ControlServer {
 public:
  virtual ~ControlServer() = default;  // stops the threads (within about 2 s) and removes the socket
  virtual const std::string& socketPath() const = 0;
  /// 0 = no TCP.
  virtual int tcpPort() const = 0;
};

struct ControlServerOptions {
  std::string root;  // folder of all jobs' sockets; empty = controlRoots().front()
  std::string job;
  Rank rank = 0;
  std::string tcpAddress;  // HOST:PORT, PORT 0 = any; empty = no TCP
  std::string token;       // TCP only with it
  int tcpPortOffset =
      0;  // added to PORT unless that is 0: ranks of one host share the address in their environment
};

/// The interface must outlive the server.
Result<std::unique_ptr<ControlServer>> startControlServer(ControlInterface& interface,
                                                          const ControlServerOptions& options);

/// Starts a server by options and environment (THESEUS_JOB, THESEUS_CTL_ADDRESS, THESEUS_CTL_TOKEN). A server
/// that cannot start is logged and is null: a job does not fail for want of a view on it. The factory itself
/// is null in builds without the HTTP library.
using ControlServerFactory = std::unique_ptr<ControlServer> (*)(ControlInterface& interface,
                                                                const CommunicatorOptions& options);
ControlServerFactory controlServerFactory();

/// THESEUS_JOB, or made from the master's address and port, or the name of the LocalJob; only characters that
/// suit a file name.
std::string jobName(const CommunicatorOptions& options);
std::string fileNameOf(const std::string& job);

/// Where sockets may lie: $XDG_RUNTIME_DIR/theseus-UID first (if usable), then /tmp/theseus-UID. Servers use
/// the first, clients look in all.
std::vector<std::string> controlRoots();

/// Whether somebody listens at a unix socket.
enum class SocketState { kAlive, kDead, kGone };
SocketState probeSocket(const std::string& path);

/// Removes sockets on which nobody listens any more, and then the folders that are empty; what lives stays.
void removeDeadSockets(const std::string& job);

/// A socket's place in the file system: ROOT/JOB/RANK.sock, folders of mode 0700, removed with its owner.
class SocketPlace {
 public:
  static Result<SocketPlace> claim(const ControlServerOptions& options);
  SocketPlace(SocketPlace&& other) noexcept;
  SocketPlace& operator=(SocketPlace&&) = delete;
  ~SocketPlace();
  /// Bind here, then publish(): a client never sees a socket on which nobody listens yet.
  const std::string& temporaryPath() const { return temporary_; }
  const std::string& path() const { return path_; }
  Status publish();

 private:
  SocketPlace() = default;
  std::string folder_;
  std::string root_;
  std::string path_;
  std::string temporary_;
  bool published_ = false;
  bool owned_ = true;
};

}  // namespace theseus::runtime
