// Rank 0 of the rendezvous: one poll loop over the listener, the connections that have not yet proven
// themselves, and the members.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "runtime/bootstrap_rendezvous.h"

namespace theseus::runtime {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kStrangerBound = 5s;  // a rank of the job needs a few round trips
constexpr std::size_t kPendingMax =
    256;  // beyond it the oldest goes: a rank of the job tries again, a silent stranger does not matter

class Master final : public Rendezvous {
 public:
  explicit Master(const CommunicatorOptions& options)
      : options_(options),
        members_(static_cast<std::size_t>(options.size)),
        strangers_("rank 0, rendezvous") {}
  ~Master() override {
    for (Peer& member : members_) {
      if (member.stream) member.stream->closeSending();
    }
  }

  Status listen();
  Status join();
  Result<std::vector<std::string>> exchange(const std::string& tag, std::string blob) override;

 private:
  struct Peer {
    std::unique_ptr<FramedStream> stream;  // null: not there
    std::string address;
    std::optional<std::string> tag;  // its part of the exchange under way
    std::string blob;
  };
  struct Pending {
    std::unique_ptr<FramedStream> stream;
    Hello hello;
    std::string address;
    Deadline deadline;
    bool gone = false;
  };

  Status listenAt(int port, std::vector<SocketAddress> candidates);
  Status refuseSecondMaster(int port);
  Status step(Deadline deadline);
  void acceptAll();
  void evictOldest(const std::string& why);
  Status serve(Pending& pending);
  Status admit(Pending& pending);
  void drop(Pending& pending, const std::string& why);
  Status readMember(Rank rank, bool joining);
  Status takeBlob(Rank rank, std::string_view payload);
  std::vector<Rank> missing() const;
  Status flushMembers(Deadline deadline);
  void tellLateRanks();
  tl::unexpected<Error> failJob(Error error);

  CommunicatorOptions options_;
  Descriptor listener_;
  std::string listenText_;
  std::vector<Peer> members_;
  std::vector<Pending> pending_;
  std::vector<std::unique_ptr<FramedStream>> turnedAway_;  // get the job's error too
  std::set<Rank> told_;                                    // ranks that know the job's error
  StrangerLog strangers_;
  Deadline joinDeadline_{};
  bool joining_ = true;
  std::optional<Error> broken_;
};

Result<std::vector<SocketAddress>> listenCandidates(const CommunicatorOptions& options) {
  std::vector<SocketAddress> candidates;
  if (namesLoopback(options.masterAddress)) return resolve(options.masterAddress, options.masterPort);
  // The master's number when it is ours. A name may mean different numbers on different hosts (127.0.1.1 on
  // its own), and a number may belong to a router in front of us: then all interfaces.
  if (auto number = parseNumericAddress(options.masterAddress, options.masterPort))
    candidates.push_back(*number);
  for (const char* any : {"::", "0.0.0.0"}) {
    if (auto address = parseNumericAddress(any, options.masterPort)) candidates.push_back(*address);
  }
  return candidates;
}

Status Master::listen() {
  auto candidates = listenCandidates(options_);
  if (!candidates) return fail(candidates.error());
  const int last = std::min(options_.masterPort + kRendezvousPorts - 1, 65535);
  for (int port = options_.masterPort; port <= last && !listener_.valid(); ++port) {
    THESEUS_TRY(listenAt(port, *candidates));
  }
  if (listener_.valid()) return {};
  return fail(
      ErrorCode::kIo,
      fmt::format(
          "rank 0 cannot listen at {}: the ports {} to {} are in use by other programs; choose another "
          "MASTER_PORT or THESEUS_PORT",
          options_.masterAddress, options_.masterPort, last));
}

Status Master::listenAt(int port, std::vector<SocketAddress> candidates) {
  std::optional<Error> problem;
  for (SocketAddress& candidate : candidates) {
    candidate.setPort(port);
    auto socket = listenOn(candidate);
    if (!socket) {
      problem =
          socket.error();  // not an address of this host, or a family that it does not have: the next one
      continue;
    }
    if (!*socket) {
      THESEUS_TRY(refuseSecondMaster(port));
      logLine(fmt::format("rank 0: port {} at {} is in use by another program, trying the next", port,
                          options_.masterAddress));
      return {};
    }
    listener_ = std::move(**socket);
    listenText_ = endpointText(candidate);
    return {};
  }
  return problem ? Status(fail(*problem)) : Status();
}

/// A listener that knows our secret and our port is this job: two processes think that they are rank 0.
Status Master::refuseSecondMaster(int port) {
  auto addresses = resolve(options_.masterAddress, port);
  if (!addresses) return {};
  GreetOutcome outcome = greet(options_, addresses->front(), Clock::now() + 1s);
  if (!outcome.stream && !outcome.final) return {};
  return fail(ErrorCode::kMismatch, fmt::format("another process is already rank 0 of a job with this secret "
                                                "at {}:{}; give each process its own RANK, and each "
                                                "job its own MASTER_PORT or THESEUS_SECRET",
                                                options_.masterAddress, port));
}

std::vector<Rank> Master::missing() const {
  std::vector<Rank> ranks;
  for (Rank rank = 1; rank < options_.size; ++rank) {
    if (!members_[static_cast<std::size_t>(rank)].stream) ranks.push_back(rank);
  }
  return ranks;
}

Status Master::join() {
  joinDeadline_ = Clock::now() + options_.timeout;
  while (!missing().empty()) {
    if (auto stepped = step(joinDeadline_); !stepped) {
      tellLateRanks();
      return stepped;
    }
    if (Clock::now() < joinDeadline_) continue;
    const std::vector<Rank> absent = missing();
    if (absent.empty()) break;
    std::string note;
    if (strangers_.count() > 0)
      note = fmt::format("; {} other connections were dropped, the last: {}", strangers_.count(),
                         strangers_.last());
    return failJob(
        Error{ErrorCode::kTimeout,
              fmt::format(
                  "{} of {} did not join at {} within {}; check that they run and have the same MASTER_ADDR, "
                  "MASTER_PORT and THESEUS_SECRET{}",
                  rankList(absent), options_.size, listenText_, secondsText(options_.timeout), note)});
  }
  joining_ = false;
  listener_.close();
  pending_.clear();
  for (Rank rank = 1; rank < options_.size; ++rank) {
    members_[static_cast<std::size_t>(rank)].stream->queueFrame(
        static_cast<std::uint8_t>(RendezvousFrame::kJoined), "");
  }
  return flushMembers(Clock::now() + options_.timeout);
}

/// The job has failed before all ranks came. Those that come a little later hear why; otherwise they would
/// look for rank 0 until their time-out.
void Master::tellLateRanks() {
  const Deadline deadline = Clock::now() + 1s;
  while (Clock::now() < deadline && told_.size() + 1 < members_.size()) {
    if (auto stepped = step(deadline); !stepped)
      continue;  // one more that cannot join, for the same or another reason
  }
  for (auto& stream : turnedAway_) stream->closeSending();
  turnedAway_.clear();
  pending_.clear();
  listener_.close();
}

Status Master::step(Deadline deadline) {
  std::vector<pollfd> entries;
  std::vector<Rank> ranks;
  for (Rank rank = 1; rank < options_.size; ++rank) {
    const Peer& member = members_[static_cast<std::size_t>(rank)];
    if (!member.stream) continue;
    entries.push_back({member.stream->socket().get(),
                       static_cast<short>(POLLIN | (member.stream->queuedBytes() > 0 ? POLLOUT : 0)), 0});
    ranks.push_back(rank);
  }
  for (const Pending& pending : pending_) {
    entries.push_back({pending.stream->socket().get(),
                       static_cast<short>(POLLIN | (pending.stream->queuedBytes() > 0 ? POLLOUT : 0)), 0});
    deadline = std::min(deadline, pending.deadline);
  }
  if (listener_.valid()) entries.push_back({listener_.get(), POLLIN, 0});
  if (::poll(entries.data(), entries.size(), remainingMilliseconds(deadline)) < 0 && errno != EINTR) {
    return failJob(
        Error{ErrorCode::kIo, fmt::format("rank 0 cannot wait for connections: {}", std::strerror(errno))});
  }
  // Members first: one that has gone must be known to be gone before its successor is taken for a duplicate.
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (entries[i].revents != 0) THESEUS_TRY(readMember(ranks[i], joining_));
  }
  const auto now = Clock::now();
  Status outcome;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    Status served;
    if (entries[ranks.size() + i].revents != 0) served = serve(pending_[i]);
    if (!served && outcome) outcome = served;
    if (!pending_[i].gone && now >= pending_[i].deadline)
      drop(pending_[i], "it did not complete the handshake in time");
  }
  std::erase_if(pending_, [](const Pending& pending) { return pending.gone; });
  if (listener_.valid() && (entries.back().revents & POLLIN) != 0) acceptAll();
  return outcome;
}

void Master::acceptAll() {
  // Bounded, so that a flood leaves time for those who are already in.
  for (std::size_t accepted = 0; accepted < kPendingMax; ++accepted) {
    auto socket = acceptOne(listener_);
    if (!socket) {
      if (pending_.empty()) return;  // nothing to give up; the next step tries again
      evictOldest(socket.error().message);
      continue;
    }
    if (!*socket) return;
    if (pending_.size() >= kPendingMax) evictOldest("too many connections wait for their handshake");
    setDeadPeerBound(**socket, options_.timeout);
    const std::string address = endpointText(peerAddress(**socket));
    const HelloIdentity self{HelloPurpose::kRendezvous, 0, options_.size, options_.masterPort};
    pending_.push_back(Pending{std::make_unique<FramedStream>(std::move(**socket), kRendezvousFrameBytesMax),
                               Hello(Hello::Side::kAcceptor, self, options_.secret), address,
                               Clock::now() + kStrangerBound});
  }
}

void Master::evictOldest(const std::string& why) {
  if (pending_.empty()) return;
  strangers_.dropped(pending_.front().address, why);
  pending_.erase(pending_.begin());
}

void Master::drop(Pending& pending, const std::string& why) {
  strangers_.dropped(pending.address, why);
  pending.gone = true;
}

Status Master::serve(Pending& pending) {
  auto filled = pending.stream->fill();
  auto fed = pending.hello.feed(pending.stream->raw());
  pending.stream->queueRaw(pending.hello.takeOutput());
  (void)pending.stream->flush();  // a failure shows as the end of the stream
  if (!fed) {
    pending.stream->closeSending();
    if (pending.hello.verdict() == HelloVerdict::kOtherSize) {
      pending.gone = true;
      return failJob(fed.error());
    }
    std::string who;
    if (pending.hello.verdict() == HelloVerdict::kWrongSecret)
      who = fmt::format(" (it says that it is rank {})", pending.hello.peer().rank);
    drop(pending, fed.error().message + who);
    return {};
  }
  if (pending.hello.done()) return admit(pending);
  if (!filled || !*filled) drop(pending, "it closed the connection during the handshake");
  return {};
}

Status Master::admit(Pending& pending) {
  const Rank rank = pending.hello.peer().rank;
  pending.gone = true;
  Peer& member = members_[static_cast<std::size_t>(rank)];
  if (broken_) {
    pending.stream->queueFrame(static_cast<std::uint8_t>(RendezvousFrame::kError), encodeError(*broken_));
    (void)pending.stream->flush();
    told_.insert(rank);
    turnedAway_.push_back(std::move(pending.stream));
    return {};
  }
  if (rank == 0 || member.stream) {
    turnedAway_.push_back(std::move(pending.stream));
    return failJob(Error{
        ErrorCode::kMismatch,
        fmt::format("two processes claim to be rank {}: {} and {}; give each process its own RANK", rank,
                    rank == 0 ? "the one that listens at " + listenText_ : "one at " + member.address,
                    "one at " + pending.address)});
  }
  member.stream = std::move(pending.stream);
  member.address = pending.address;
  const auto left = static_cast<std::uint32_t>(std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(joinDeadline_ - Clock::now()).count()));
  std::string payload;
  for (int shift = 0; shift < 32; shift += 8) payload.push_back(static_cast<char>(left >> shift));
  member.stream->queueFrame(static_cast<std::uint8_t>(RendezvousFrame::kWelcome), payload);
  (void)member.stream->flush();
  return {};
}

Status Master::readMember(Rank rank, bool joining) {
  Peer& member = members_[static_cast<std::size_t>(rank)];
  auto flushed = member.stream->flush();
  auto filled = member.stream->fill();
  const bool open = flushed.has_value() && filled.has_value() && *filled;
  while (!joining && !member.tag) {  // one part at a time
    auto frame = member.stream->nextFrame();
    if (!frame)
      return failJob(Error{ErrorCode::kTransport, fmt::format("rank {}: {}", rank, frame.error().message)});
    if (!*frame) break;
    THESEUS_TRY(takeBlob(rank, (*frame)->payload));
  }
  if (open) return {};
  if (joining) {
    logLine(fmt::format("rank 0, rendezvous: rank {} at {} left before all ranks had joined", rank,
                        member.address));
    member = Peer{};
    return {};
  }
  return failJob(Error{ErrorCode::kAborted,
                       fmt::format("rank {} at {} left during the rendezvous; its own output says why", rank,
                                   member.address)});
}

Status Master::takeBlob(Rank rank, std::string_view payload) {
  Peer& member = members_[static_cast<std::size_t>(rank)];
  const auto tag = takeText(payload);
  const auto blob = takeText(payload);
  if (!tag || !blob || !payload.empty()) {
    return failJob(
        Error{ErrorCode::kTransport, fmt::format("rank {} broke the protocol of the rendezvous", rank)});
  }
  member.tag = std::string(*tag);
  member.blob = std::string(*blob);
  return {};
}

Status Master::flushMembers(Deadline deadline) {
  while (true) {
    std::vector<pollfd> entries;
    std::vector<Rank> waiting;
    for (Rank rank = 1; rank < options_.size; ++rank) {
      Peer& member = members_[static_cast<std::size_t>(rank)];
      if (!member.stream || member.stream->queuedBytes() == 0) continue;
      if (auto flushed = member.stream->flush(); !flushed) {
        return failJob(
            Error{ErrorCode::kAborted, fmt::format("rank {} at {} left during the rendezvous ({})", rank,
                                                   member.address, flushed.error().message)});
      }
      if (member.stream->queuedBytes() == 0) continue;
      entries.push_back({member.stream->socket().get(), POLLOUT, 0});
      waiting.push_back(rank);
    }
    if (entries.empty()) return {};
    const int left = remainingMilliseconds(deadline);
    if (left == 0)
      return failJob(
          Error{ErrorCode::kTimeout, fmt::format("{} did not read what rank 0 sent", rankList(waiting))});
    (void)::poll(entries.data(), entries.size(), left);
  }
}

tl::unexpected<Error> Master::failJob(Error error) {
  if (broken_) return fail(*broken_);
  broken_ = error;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].stream) continue;
    turnedAway_.push_back(std::move(members_[rank].stream));
    told_.insert(static_cast<Rank>(rank));
  }
  for (auto& stream : turnedAway_)
    stream->queueFrame(static_cast<std::uint8_t>(RendezvousFrame::kError), encodeError(error));
  const Deadline deadline = Clock::now() + 2s;  // a courtesy, not worth more
  while (true) {
    std::vector<pollfd> entries;
    for (auto& stream : turnedAway_) {
      if (stream->flush() && stream->queuedBytes() > 0)
        entries.push_back({stream->socket().get(), POLLOUT, 0});
    }
    const int left = remainingMilliseconds(deadline);
    if (entries.empty() || left == 0) break;
    (void)::poll(entries.data(), entries.size(), left);
  }
  for (auto& stream : turnedAway_) stream->closeSending();
  turnedAway_.clear();
  return fail(std::move(error));
}

Result<std::vector<std::string>> Master::exchange(const std::string& tag, std::string blob) {
  if (broken_) return fail(*broken_);
  if (blob.size() > kBlobBytesMax)
    return fail(ErrorCode::kInvalidArgument, "a blob of the rendezvous is larger than 64 MiB");
  members_[0].blob = std::move(blob);
  members_[0].tag = tag;
  const Deadline deadline = Clock::now() + options_.timeout;
  // Parts that arrived early lie in the streams already and wake nobody.
  for (Rank rank = 1; rank < options_.size; ++rank) THESEUS_TRY(readMember(rank, false));
  while (true) {
    std::vector<Rank> late;
    for (Rank rank = 0; rank < options_.size; ++rank) {
      const Peer& member = members_[static_cast<std::size_t>(rank)];
      if (!member.tag) late.push_back(rank);
      if (member.tag && *member.tag != tag) {
        return failJob(
            Error{ErrorCode::kMismatch,
                  fmt::format("the ranks are out of step: rank 0 is at exchange \"{}\", rank {} at \"{}\"; "
                              "all ranks need the same release of Theseus and the same options",
                              tag, rank, *member.tag)});
      }
    }
    if (late.empty()) break;
    if (Clock::now() >= deadline) {
      return failJob(Error{ErrorCode::kTimeout,
                           fmt::format("{} of {} did not reach exchange \"{}\" of the rendezvous within {}",
                                       rankList(late), options_.size, tag, secondsText(options_.timeout))});
    }
    THESEUS_TRY(step(deadline));
  }
  std::string all;
  appendText(all, tag);
  std::vector<std::string> blobs;
  for (Peer& member : members_) {
    appendText(all, member.blob);
    blobs.push_back(std::exchange(member.blob, {}));
    member.tag.reset();
  }
  if (all.size() > kRendezvousFrameBytesMax)
    return failJob(Error{ErrorCode::kInvalidArgument, "the blobs of all ranks together exceed 1 GiB"});
  for (Rank rank = 1; rank < options_.size; ++rank) {
    members_[static_cast<std::size_t>(rank)].stream->queueFrame(
        static_cast<std::uint8_t>(RendezvousFrame::kAll), all);
  }
  THESEUS_TRY(flushMembers(deadline + options_.timeout));
  return blobs;
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> makeRendezvousMaster(const CommunicatorOptions& options) {
  auto master = std::make_unique<Master>(options);
  if (options.size > 1) {
    THESEUS_TRY(master->listen());
    THESEUS_TRY(master->join());
  }
  return std::unique_ptr<Rendezvous>(std::move(master));
}

}  // namespace theseus::runtime
