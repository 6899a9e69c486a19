// Ranks other than 0: find rank 0 among the candidate ports, shake hands, then exchange through it.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/check.h"
#include "runtime/bootstrap_rendezvous.h"

namespace theseus::runtime {
namespace {

using namespace std::chrono_literals;

/// False when the deadline passed first.
bool waitFor(const Descriptor& socket, short events, Deadline deadline) {
  while (true) {
    pollfd entry{socket.get(), events, 0};
    const int left = remainingMilliseconds(deadline);
    if (::poll(&entry, 1, left) > 0) return true;
    if (left == 0) return false;
  }
}

class Member final : public Rendezvous {
 public:
  Member(const CommunicatorOptions& options, std::unique_ptr<FramedStream> stream)
      : options_(options), stream_(std::move(stream)) {}
  ~Member() override { stream_->closeSending(); }

  Status awaitAll();
  Result<std::vector<std::string>> exchange(const std::string& tag, std::string blob) override;

 private:
  Status sendAll(Deadline deadline);
  Result<std::vector<std::string>> readAll(const std::string& tag, std::string_view payload) const;
  tl::unexpected<Error> broken(Error error) {
    broken_ = error;
    return fail(std::move(error));
  }

  CommunicatorOptions options_;
  std::unique_ptr<FramedStream> stream_;
  std::optional<Error> broken_;
};

Status Member::awaitAll() {
  // Rank 0 may have begun after us: its welcome says for how long it will wait, so that its error, which
  // names the missing ranks, reaches us.
  Deadline deadline = std::chrono::steady_clock::now() + options_.timeout;
  while (true) {
    auto frame = awaitFrame(*stream_, deadline);
    if (!frame) {
      return broken(Error{
          frame.error().code,
          fmt::format("rank 0 was found but the job did not come together: {}", frame.error().message)});
    }
    if (frame->kind == RendezvousFrame::kJoined) return {};
    if (frame->kind == RendezvousFrame::kError) return broken(decodeError(frame->payload));
    if (frame->kind != RendezvousFrame::kWelcome || frame->payload.size() != 4) {
      return broken(Error{ErrorCode::kTransport, "rank 0 broke the protocol of the rendezvous"});
    }
    std::uint32_t left = 0;
    for (int i = 0; i < 4; ++i)
      left |= static_cast<std::uint32_t>(static_cast<unsigned char>(frame->payload[i])) << (8 * i);
    deadline = std::chrono::steady_clock::now() +
               std::min(std::chrono::milliseconds(left), options_.timeout * 4) + 2s;
  }
}

Status Member::sendAll(Deadline deadline) {
  while (stream_->queuedBytes() > 0) {
    THESEUS_TRY(stream_->flush());
    if (stream_->queuedBytes() > 0 && !waitFor(stream_->socket(), POLLOUT, deadline)) {
      return fail(ErrorCode::kTimeout, "rank 0 does not read what this rank sends");
    }
  }
  return {};
}

Result<std::vector<std::string>> Member::readAll(const std::string& tag, std::string_view payload) const {
  const tl::unexpected<Error> malformed =
      fail(ErrorCode::kTransport, "rank 0 sent an answer that this rank cannot read");
  const auto answered = takeText(payload);
  if (!answered || *answered != tag) return malformed;
  std::vector<std::string> blobs;
  for (int rank = 0; rank < options_.size; ++rank) {
    const auto blob = takeText(payload);
    if (!blob) return malformed;
    blobs.emplace_back(*blob);
  }
  if (!payload.empty()) return malformed;
  return blobs;
}

Result<std::vector<std::string>> Member::exchange(const std::string& tag, std::string blob) {
  if (broken_) return fail(*broken_);
  if (blob.size() > kBlobBytesMax)
    return fail(ErrorCode::kInvalidArgument, "a blob of the rendezvous is larger than 64 MiB");
  // Twice the time-out: rank 0 begins its own wait as late as one time-out after us, and it is rank 0 that
  // can name who is missing.
  const Deadline deadline = std::chrono::steady_clock::now() + 2 * options_.timeout;
  std::string payload;
  appendText(payload, tag);
  appendText(payload, blob);
  stream_->queueFrame(static_cast<std::uint8_t>(RendezvousFrame::kBlob), std::move(payload));
  if (auto sent = sendAll(deadline); !sent && sent.error().code == ErrorCode::kTimeout)
    return broken(sent.error());
  // A failed write is not reported yet: rank 0 may have said why before it closed.
  auto frame = awaitFrame(*stream_, deadline);
  if (!frame) {
    return broken(Error{frame.error().code, fmt::format("exchange \"{}\" of the rendezvous failed: {}", tag,
                                                        frame.error().message)});
  }
  if (frame->kind == RendezvousFrame::kError) return broken(decodeError(frame->payload));
  if (frame->kind != RendezvousFrame::kAll)
    return broken(Error{ErrorCode::kTransport, "rank 0 broke the protocol of the rendezvous"});
  auto blobs = readAll(tag, frame->payload);
  if (!blobs) return broken(blobs.error());
  return blobs;
}

/// Looks for rank 0 until it is found or the time is over.
class Search {
 public:
  explicit Search(const CommunicatorOptions& options)
      : options_(options), deadline_(std::chrono::steady_clock::now() + options.timeout) {}

  Result<std::unique_ptr<FramedStream>> run() {
    auto attemptBound = 2s;  // a listener that stays silent is not rank 0, or rank 0 under a flood
    while (std::chrono::steady_clock::now() < deadline_) {
      auto addresses = resolve(options_.masterAddress, options_.masterPort);
      if (!addresses) last_ = addresses.error().message;  // the name may appear later
      for (int offset = 0; addresses && offset < kRendezvousPorts; ++offset) {
        for (SocketAddress address : *addresses) {
          const int port = options_.masterPort + offset;
          if (port > 65535) continue;
          address.setPort(port);
          auto outcome = tryOne(address, attemptBound);
          if (outcome.stream) return std::move(outcome.stream);
          if (outcome.final) return fail(outcome.error);
        }
      }
      attemptBound = std::min(attemptBound * 2, std::chrono::seconds(16));
      const auto rest = deadline_ - std::chrono::steady_clock::now();
      if (rest > 0ns) std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(rest, 50ms));
    }
    return fail(ErrorCode::kTimeout,
                fmt::format("rank {} of {} did not find rank 0 at {}:{} within {}: {}; check that rank 0 "
                            "runs and that all ranks have the "
                            "same MASTER_ADDR, MASTER_PORT and THESEUS_SECRET",
                            options_.rank, options_.size, options_.masterAddress, options_.masterPort,
                            secondsText(options_.timeout), last_.empty() ? "nobody listens there" : last_));
  }

 private:
  GreetOutcome tryOne(const SocketAddress& address, std::chrono::seconds bound) {
    GreetOutcome outcome =
        greet(options_, address, std::min<Deadline>(deadline_, std::chrono::steady_clock::now() + bound));
    if (outcome.stream || outcome.final) return outcome;
    const std::string what = fmt::format("{}: {}", endpointText(address), outcome.error.message);
    const bool telling = outcome.error.code == ErrorCode::kMismatch;
    // A refusal by someone who does listen says more than "connection refused" at the next port.
    if (telling || last_.empty() || !lastTelling_) last_ = what;
    lastTelling_ = lastTelling_ || telling;
    if (telling && told_.insert(what).second)
      logLine(fmt::format("rank {}: {}; still looking for rank 0", options_.rank, what));
    return outcome;
  }

  CommunicatorOptions options_;
  Deadline deadline_;
  std::string last_;
  bool lastTelling_ = false;
  std::set<std::string> told_;
};

}  // namespace

Result<OwnedFrame> awaitFrame(FramedStream& stream, Deadline deadline) {
  bool open = true;
  while (true) {
    auto frame = stream.nextFrame();
    if (!frame) return fail(frame.error());
    if (*frame)
      return OwnedFrame{static_cast<RendezvousFrame>((*frame)->kind), std::string((*frame)->payload)};
    if (!open) return fail(ErrorCode::kTransport, "rank 0 closed the connection");
    if (!waitFor(stream.socket(), POLLIN, deadline))
      return fail(ErrorCode::kTimeout, "rank 0 did not answer in time");
    auto filled = stream.fill();
    if (!filled)
      return fail(ErrorCode::kTransport, "the connection to rank 0 broke (" + filled.error().message + ")");
    open = *filled;
  }
}

GreetOutcome greet(const CommunicatorOptions& options, const SocketAddress& address, Deadline deadline) {
  GreetOutcome outcome;
  auto socket = startConnect(address);
  if (!socket) {
    outcome.error = socket.error();
    return outcome;
  }
  if (!waitFor(*socket, POLLOUT, deadline)) {
    outcome.error = Error{ErrorCode::kTimeout, "no answer to the attempt to connect"};
    return outcome;
  }
  if (const int error = connectError(*socket); error != 0) {
    outcome.error = Error{ErrorCode::kTransport, std::strerror(error)};
    return outcome;
  }
  setDeadPeerBound(*socket, options.timeout);
  auto stream = std::make_unique<FramedStream>(std::move(*socket), kRendezvousFrameBytesMax);
  Hello hello(Hello::Side::kConnector,
              HelloIdentity{HelloPurpose::kRendezvous, options.rank, options.size, options.masterPort},
              options.secret);
  bool open = true;
  while (!hello.done()) {
    stream->queueRaw(hello.takeOutput());
    if (auto flushed = stream->flush(); !flushed) open = false;
    if (open && !waitFor(stream->socket(), POLLIN, deadline)) {
      outcome.error =
          Error{ErrorCode::kMismatch, "something listens there but does not answer the handshake"};
      return outcome;
    }
    auto filled = stream->fill();
    if (auto fed = hello.feed(stream->raw()); !fed) {
      outcome.error = fed.error();
      outcome.final = hello.verdict() == HelloVerdict::kOtherSize;
      return outcome;
    }
    if (!hello.done() && (!filled || !*filled || !open)) {
      outcome.error = Error{ErrorCode::kTransport,
                            "something listens there but closed the connection during the handshake"};
      return outcome;
    }
  }
  outcome.stream = std::move(stream);
  return outcome;
}

Result<std::unique_ptr<Rendezvous>> makeRendezvousMember(const CommunicatorOptions& options) {
  auto stream = Search(options).run();
  if (!stream) return fail(stream.error());
  auto member = std::make_unique<Member>(options, std::move(*stream));
  THESEUS_TRY(member->awaitAll());
  return std::unique_ptr<Rendezvous>(std::move(member));
}

}  // namespace theseus::runtime
