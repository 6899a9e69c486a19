// Sockets on which a handshake runs: one that a rank opened, and the bounded set that came in at its
// listener, strangers included. Owned by an endpoint; used only by the thread that drives it. Nothing here
// blocks.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "drivers/posix/descriptor.h"
#include "drivers/posix/poller.h"
#include "transport/hello.h"

namespace theseus::transport {

/// A socket and the handshake on it.
class Greeting {
 public:
  enum class State { kPending, kDone, kEnded };  // kEnded: the other side went away without a word

  Greeting(drivers::FileDescriptor socket, std::unique_ptr<Handshake> handshake)
      : socket_(std::move(socket)), handshake_(std::move(handshake)) {}
  Status send(const std::vector<std::byte>& message);
  /// Does what can be done now. Errors: the handshake failed.
  Result<State> advance();
  Rank peer() const { return handshake_->peer(); }
  const drivers::FileDescriptor& socket() const { return socket_; }
  drivers::FileDescriptor takeSocket() { return std::move(socket_); }

 private:
  drivers::FileDescriptor socket_;
  std::unique_ptr<Handshake> handshake_;
};

/// The door: takes connections from a listener and lets in who proves membership. A stranger costs one socket
/// for a few seconds at most, and a crowd of them pushes out the oldest of the crowd, never anybody who is
/// in.
class Admission {
 public:
  struct Admitted {
    Rank from = 0;
    drivers::FileDescriptor socket;
  };
  struct Options {
    drivers::FileDescriptor listener;
    HelloIdentity identity;
    std::uint64_t listenerKey = 1;   // for the poller
    std::uint64_t greetingsKey = 2;  // for the poller
    base::Nanoseconds patience = std::chrono::seconds(5);
  };
  static Result<Admission> create(Options options, drivers::Poller& poller);

  void onListenerReadable() { callersWait_ = true; }
  /// Bounded work: accepts some, advances all. Never fails: who cannot be let in is dropped and logged.
  std::vector<Admitted> advance(drivers::Poller& poller, base::TimePoint now);
  /// Callers or handshakes are under way.
  bool busy() const { return callersWait_ || !greetings_.empty(); }
  std::size_t pending() const { return greetings_.size(); }
  const drivers::FileDescriptor& listener() const { return options_.listener; }

 private:
  struct Visitor {
    std::unique_ptr<Greeting> greeting;
    base::TimePoint deadline;
  };
  explicit Admission(Options options);
  void acceptSome(drivers::Poller& poller, base::TimePoint now);
  void drop(const Visitor& visitor, std::string_view reason);

  Options options_;
  std::unique_ptr<std::vector<bool>> known_;  // at an address that handshakes may refer to
  std::vector<Visitor> greetings_;            // oldest first
  bool callersWait_ = true;
  std::uint64_t dropped_ = 0;
  base::TimePoint lastNotice_{-1'000'000'000};
};

}  // namespace theseus::transport
