// How two ranks that have just met over a socket prove to each other that they belong to one job, without
// ever sending its secret. Challenge, hello, verdict: three messages of fixed size, docs/wire-format.md. No
// IO; owned by whoever owns the socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hmac.h"
#include "base/ids.h"
#include "theseus/result.h"

namespace theseus::transport {

constexpr std::uint32_t kHelloVersion = 1;
using Nonce = std::array<std::byte, 32>;

struct ChallengeMessage {                              // accepting side, at once
  static constexpr std::uint32_t kMagic = 0x43534854;  // "THSC"
  std::uint32_t magic = kMagic;
  std::uint32_t version = kHelloVersion;
  Nonce nonce{};
};
struct HelloMessage {                                  // connecting side
  static constexpr std::uint32_t kMagic = 0x48534854;  // "THSH"
  std::uint32_t magic = kMagic;
  std::uint32_t version = kHelloVersion;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t size = 0;
  std::uint32_t reserved = 0;
  Nonce nonce{};
  base::Digest256 proof{};
};
enum class Verdict : std::uint32_t {
  kWelcome = 0,
  kWrongProof = 1,
  kWrongRank = 2,
  kDuplicate = 3,
  kWrongVersion = 4
};
struct VerdictMessage {                                // accepting side
  static constexpr std::uint32_t kMagic = 0x56534854;  // "THSV"
  std::uint32_t magic = kMagic;
  Verdict verdict = Verdict::kWelcome;
  base::Digest256 proof{};
};
static_assert(sizeof(ChallengeMessage) == 40 && offsetof(ChallengeMessage, nonce) == 8);
static_assert(sizeof(HelloMessage) == 88 && offsetof(HelloMessage, nonce) == 24 &&
              offsetof(HelloMessage, proof) == 56);
static_assert(sizeof(VerdictMessage) == 40 && offsetof(VerdictMessage, proof) == 8);

struct HelloIdentity {
  std::string secret;
  std::string job;
  Rank self = 0;
  int size = 1;
};

/// One side. Receive exactly wanted() bytes, call received(), send what it returns, until done().
class Handshake {
 public:
  virtual ~Handshake() = default;
  /// Where the next bytes go; empty when done.
  std::span<std::byte> wanted() { return std::span<std::byte>(incoming_).subspan(filled_); }
  bool done() const { return done_; }
  /// The other side; meaningful when done.
  Rank peer() const { return peer_; }
  /// `bytes` of wanted() were filled. The message to send in answer, maybe empty. An error ends the
  /// handshake; the answer that tells the other side why, if there is one, is in farewell().
  Result<std::vector<std::byte>> received(std::size_t bytes);
  const std::vector<std::byte>& farewell() const { return farewell_; }

 protected:
  explicit Handshake(HelloIdentity identity) : identity_(std::move(identity)) {}
  virtual Result<std::vector<std::byte>> onMessage(std::span<const std::byte> message) = 0;
  void want(std::size_t bytes) { incoming_.assign(bytes, std::byte{0}), filled_ = 0; }

  HelloIdentity identity_;
  Rank peer_ = -1;
  bool done_ = false;
  std::vector<std::byte> farewell_;

 private:
  std::vector<std::byte> incoming_;
  std::size_t filled_ = 0;
};

class ConnectingHandshake final : public Handshake {
 public:
  ConnectingHandshake(HelloIdentity identity, Rank to);

 private:
  Result<std::vector<std::byte>> onMessage(std::span<const std::byte> message) override;
  Result<std::vector<std::byte>> onChallenge(const ChallengeMessage& challenge);
  Status onVerdict(const VerdictMessage& verdict);

  bool challenged_ = false;
  Nonce theirNonce_{};
  Nonce ourNonce_{};
};

class AcceptingHandshake final : public Handshake {
 public:
  /// `known[r]`: rank r is connected already.
  AcceptingHandshake(HelloIdentity identity, const std::vector<bool>& known);
  /// To send before anything else.
  std::vector<std::byte> opening() const;

 private:
  Result<std::vector<std::byte>> onMessage(std::span<const std::byte> message) override;
  Verdict judge(const HelloMessage& hello) const;

  const std::vector<bool>& known_;
  Nonce ourNonce_{};
};

}  // namespace theseus::transport
