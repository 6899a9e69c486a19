// Carries the control plane's messages between ranks: reliable, ordered for each pair, connections opened on
// first use. Owned by the communicator and driven by its control thread; wake() alone may be called from any
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "theseus/options.h"
#include "theseus/result.h"

namespace theseus::runtime {

constexpr std::size_t kMessageBytesMax = 64u << 20;

class MessageMesh {
 public:
  using Receiver = std::function<void(Rank from, std::string_view message)>;
  virtual ~MessageMesh() = default;
  virtual std::string address() const = 0;
  virtual Status setPeers(std::vector<std::string> addresses) = 0;
  /// Queues a message (at most kMessageBytesMax); sending happens in poll(). To oneself: delivered by the
  /// next poll(). To a rank that has left: thrown away. Errors: too large, the connection is broken, or the
  /// peer lets more than 256 MiB wait.
  virtual Status send(Rank to, std::string message) = 0;
  /// Sends and receives; sleeps at most `timeout` when there is nothing to do. A broken connection is
  /// reported by `onBroken`, once a peer.
  virtual void poll(std::chrono::milliseconds timeout, const Receiver& receiver) = 0;
  virtual void wake() = 0;
  std::function<void(Rank peer, const std::string& why)> onBroken;
  /// A peer has destroyed its mesh in good order (end of its communicator); no onBroken follows. Peers with a
  /// connection to it hear of it.
  std::function<void(Rank peer)> onLeft;
};

/// One-way TCP connections, authenticated with the job's secret; a stranger is dropped and logged.
Result<std::unique_ptr<MessageMesh>> makeTcpMesh(const CommunicatorOptions& options);
std::unique_ptr<MessageMesh> makeLocalMesh(std::shared_ptr<LocalJob> job, int rank);

}  // namespace theseus::runtime
