// The two sides of the TCP rendezvous (internal to bootstrap*.cpp): rank 0 gathers and spreads, the others
// talk to it alone. One thread each. After the handshake the frames are: welcome, joined, blob, all, error;
// layout in docs/launch.md.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bootstrap.h"
#include "runtime/bootstrap_stream.h"
#include "runtime/hello.h"

namespace theseus::runtime {

using Deadline = std::chrono::steady_clock::time_point;

/// Milliseconds until `deadline` for poll(2): at least 0, at most `longest`.
int remainingMilliseconds(Deadline deadline, int longest = 1000);

enum class RendezvousFrame : std::uint8_t {
  kWelcome = 1,  // rank 0 knows this rank; payload: milliseconds for which rank 0 still waits for others
  kJoined = 2,   // all ranks are there
  kBlob = 3,     // tag, blob of the sender
  kAll = 4,      // tag, blobs by rank
  kError = 5,    // code, message: the job cannot go on
};

constexpr std::size_t kBlobBytesMax = 64u << 20;
constexpr std::size_t kRendezvousFrameBytesMax = 1u << 30;

/// Ports that rank 0 tries when masterPort is taken by another program, and that the others look at.
constexpr int kRendezvousPorts = 4;

// Strings with a length in front; the readers give nullopt for anything malformed.
void appendText(std::string& out, std::string_view text);
std::optional<std::string_view> takeText(std::string_view& in);
std::string encodeError(const Error& error);
Error decodeError(std::string_view payload);

/// "rank 3", "ranks 3 and 5", "ranks 1, 2, 3 and 12 more".
std::string rankList(const std::vector<Rank>& ranks);
std::string secondsText(std::chrono::milliseconds duration);

/// One attempt to reach a rendezvous at `address`: connect and shake hands by `deadline`.
struct GreetOutcome {
  std::unique_ptr<FramedStream> stream;  // null: it failed
  Error error;
  bool final = false;  // the other side is our job and says that it can never work
};
GreetOutcome greet(const CommunicatorOptions& options, const SocketAddress& address, Deadline deadline);

/// Waits until the stream has a frame, an error or its end. Messages speak of rank 0.
struct OwnedFrame {
  RendezvousFrame kind = RendezvousFrame::kError;
  std::string payload;
};
Result<OwnedFrame> awaitFrame(FramedStream& stream, Deadline deadline);

Result<std::unique_ptr<Rendezvous>> makeRendezvousMaster(const CommunicatorOptions& options);
Result<std::unique_ptr<Rendezvous>> makeRendezvousMember(const CommunicatorOptions& options);

}  // namespace theseus::runtime
