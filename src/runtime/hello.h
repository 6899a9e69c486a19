// The handshake at the start of every connection between ranks: magic, version, who I am, and a proof by each
// side that it knows the job's secret (challenge and response, HMAC-SHA-256; the secret itself never
// travels). Sans-IO: bytes in, bytes out. Owned by the connection, one thread. Wire layout: docs/launch.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "theseus/result.h"

namespace theseus::runtime {

enum class HelloPurpose : std::uint8_t { kRendezvous = 1, kMessages = 2 };

/// The acceptor's answer to a connector that showed its proof.
enum class HelloVerdict : std::uint8_t { kAccepted = 0, kWrongSecret = 1, kOtherJob = 2, kOtherSize = 3 };

struct HelloIdentity {
  HelloPurpose purpose = HelloPurpose::kRendezvous;
  Rank rank = 0;
  std::int32_t size = 1;
  std::int32_t masterPort = 0;  // tells jobs apart that share a host and an empty secret
};

class Hello {
 public:
  enum class Side { kConnector, kAcceptor };
  static constexpr std::size_t kHelloBytes = 52;
  static constexpr std::size_t kProofBytes = 32;

  Hello(Side side, const HelloIdentity& self, std::string secret);

  /// Bytes that must be sent now; each is given once.
  std::string takeOutput();
  /// Uses bytes from the front of `input` and removes them. An error ends the handshake: whatever
  /// takeOutput() still gives may be sent as a courtesy, then the connection is to be closed. Bytes that
  /// cannot be a hello are refused at the first that differs.
  Status feed(std::string& input);
  bool done() const { return step_ == Step::kDone; }
  /// The other side as it presents itself; proven once done() (or when the verdict is kOtherSize or
  /// kOtherJob).
  const HelloIdentity& peer() const { return peer_; }
  bool peerPresented() const { return step_ != Step::kHello; }
  /// Meaningful after feed() has failed on a verdict or when done.
  HelloVerdict verdict() const { return verdict_; }

 private:
  enum class Step { kHello, kProof, kDone, kFailed };
  Status takeHello(std::string& input);
  Status takeProofAsAcceptor(std::string& input);
  Status takeProofAsConnector(std::string& input);
  Status refuse(HelloVerdict verdict);
  std::string proof(Side side) const;

  Side side_;
  Step step_ = Step::kHello;
  HelloIdentity self_;
  HelloIdentity peer_;
  HelloVerdict verdict_ = HelloVerdict::kAccepted;
  std::string secret_;
  std::string ownHello_;
  std::string peerHello_;
  std::string output_;
};

/// Writes a line about connections that were dropped, but not thousands of them: the first few, then each
/// doubling of their number.
class StrangerLog {
 public:
  explicit StrangerLog(std::string where) : where_(std::move(where)) {}
  void dropped(const std::string& address, const std::string& why);
  std::uint64_t count() const { return count_; }
  const std::string& last() const { return last_; }

 private:
  std::string where_;
  std::string last_;
  std::uint64_t count_ = 0;
};

/// One line for people, on the runtime's log.
void logLine(const std::string& text);

}  // namespace theseus::runtime
