#include "transport/hello.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/check.h"

namespace theseus::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "messages go out as they lie in memory");

template <class Message>
Message fromBytes(std::span<const std::byte> bytes) {
  Message message;
  THESEUS_CHECK(bytes.size() == sizeof(message), "a handshake asks for whole messages");
  std::memcpy(&message, bytes.data(), sizeof(message));
  return message;
}

template <class Message>
std::vector<std::byte> toBytes(const Message& message) {
  std::vector<std::byte> bytes(sizeof(message));
  std::memcpy(bytes.data(), &message, sizeof(message));
  return bytes;
}

template <class Value>
void append(std::string& text, const Value& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

struct ProofOf {
  const char* role;
  std::int32_t from, to, size;
  const Nonce& accepting;
  const Nonce& connecting;
};

/// Both nonces make it fresh, the role keeps one side's proof from being played back as the other's.
base::Digest256 prove(const HelloIdentity& identity, const ProofOf& what) {
  std::string message = what.role;
  append(message, what.from);
  append(message, what.to);
  append(message, what.size);
  append(message, what.accepting);
  append(message, what.connecting);
  message += identity.job;
  return base::hmacSha256(identity.secret, message);
}

constexpr char kConnectingRole[] = "theseus hello 1 connecting";
constexpr char kAcceptingRole[] = "theseus hello 1 accepting ";
static_assert(sizeof(kConnectingRole) == sizeof(kAcceptingRole));

const char* explain(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWelcome:
      return "welcome";
    case Verdict::kWrongProof:
      return "it holds another secret, or belongs to another job";
    case Verdict::kWrongRank:
      return "it is another rank, or its job has another size";
    case Verdict::kDuplicate:
      return "it already has a connection from this rank: two processes claim the same rank";
    case Verdict::kWrongVersion:
      return "it runs another version of Theseus";
  }
  return "for a reason that this version does not know";
}

}  // namespace

Result<std::vector<std::byte>> Handshake::received(std::size_t bytes) {
  filled_ += bytes;
  THESEUS_CHECK(filled_ <= incoming_.size(), "no more than was wanted");
  if (filled_ < incoming_.size()) return std::vector<std::byte>();
  const std::vector<std::byte> message = std::move(incoming_);
  want(0);
  return onMessage(message);
}

ConnectingHandshake::ConnectingHandshake(HelloIdentity identity, Rank to) : Handshake(std::move(identity)) {
  peer_ = to;
  base::fillRandom(ourNonce_.data(), ourNonce_.size());
  want(sizeof(ChallengeMessage));
}

Result<std::vector<std::byte>> ConnectingHandshake::onMessage(std::span<const std::byte> message) {
  if (!challenged_) return onChallenge(fromBytes<ChallengeMessage>(message));
  THESEUS_TRY(onVerdict(fromBytes<VerdictMessage>(message)));
  done_ = true;
  return std::vector<std::byte>();
}

Result<std::vector<std::byte>> ConnectingHandshake::onChallenge(const ChallengeMessage& challenge) {
  if (challenge.magic != ChallengeMessage::kMagic)
    return fail(ErrorCode::kTransport,
                fmt::format("what listens at rank {}'s address is not Theseus", peer_));
  if (challenge.version != kHelloVersion)
    return fail(ErrorCode::kTransport,
                fmt::format("rank {} speaks version {} of the hello, this rank version {}: run the same "
                            "build everywhere",
                            peer_, challenge.version, kHelloVersion));
  challenged_ = true;
  theirNonce_ = challenge.nonce;
  HelloMessage hello;
  hello.from = identity_.self;
  hello.to = peer_;
  hello.size = identity_.size;
  hello.nonce = ourNonce_;
  hello.proof = prove(identity_, {kConnectingRole, hello.from, hello.to, hello.size, theirNonce_, ourNonce_});
  want(sizeof(VerdictMessage));
  return toBytes(hello);
}

Status ConnectingHandshake::onVerdict(const VerdictMessage& message) {
  if (message.magic != VerdictMessage::kMagic)
    return fail(ErrorCode::kTransport,
                fmt::format("rank {} broke off the hello with something unknown", peer_));
  if (message.verdict != Verdict::kWelcome)
    return fail(ErrorCode::kTransport,
                fmt::format("rank {} refused this rank: {}", peer_, explain(message.verdict)));
  const base::Digest256 expected =
      prove(identity_, {kAcceptingRole, identity_.self, peer_, identity_.size, theirNonce_, ourNonce_});
  if (!base::equalInConstantTime(message.proof, expected))
    return fail(
        ErrorCode::kTransport,
        fmt::format(
            "what listens at rank {}'s address does not know the job's secret: another job, or an impostor",
            peer_));
  return {};
}

AcceptingHandshake::AcceptingHandshake(HelloIdentity identity, const std::vector<bool>& known)
    : Handshake(std::move(identity)), known_(known) {
  base::fillRandom(ourNonce_.data(), ourNonce_.size());
  want(sizeof(HelloMessage));
}

std::vector<std::byte> AcceptingHandshake::opening() const {
  ChallengeMessage challenge;
  challenge.nonce = ourNonce_;
  return toBytes(challenge);
}

Verdict AcceptingHandshake::judge(const HelloMessage& hello) const {
  if (hello.version != kHelloVersion) return Verdict::kWrongVersion;
  // The proof first: a stranger learns nothing about ranks and sizes.
  const base::Digest256 expected =
      prove(identity_, {kConnectingRole, hello.from, hello.to, hello.size, ourNonce_, hello.nonce});
  if (!base::equalInConstantTime(hello.proof, expected)) return Verdict::kWrongProof;
  const bool inRange = hello.from >= 0 && hello.from < identity_.size && hello.from != identity_.self;
  if (!inRange || hello.to != identity_.self || hello.size != identity_.size) return Verdict::kWrongRank;
  return known_[static_cast<std::size_t>(hello.from)] ? Verdict::kDuplicate : Verdict::kWelcome;
}

Result<std::vector<std::byte>> AcceptingHandshake::onMessage(std::span<const std::byte> message) {
  const auto hello = fromBytes<HelloMessage>(message);
  if (hello.magic != HelloMessage::kMagic) return fail(ErrorCode::kTransport, "it does not speak Theseus");
  VerdictMessage answer;
  answer.verdict = judge(hello);
  if (answer.verdict != Verdict::kWelcome) {
    farewell_ = toBytes(answer);
    const char* reason =
        answer.verdict == Verdict::kWrongProof     ? "it holds another secret, or belongs to another job"
        : answer.verdict == Verdict::kWrongVersion ? "it runs another version of Theseus"
        : answer.verdict == Verdict::kDuplicate    ? "its rank is connected already: two processes claim it"
                                                   : "it is lost: wrong rank or size of job";
    return fail(ErrorCode::kTransport,
                fmt::format("{} (says it is rank {} of {})", reason, hello.from, hello.size));
  }
  peer_ = hello.from;
  answer.proof = prove(identity_, {kAcceptingRole, hello.from, hello.to, hello.size, ourNonce_, hello.nonce});
  done_ = true;
  return toBytes(answer);
}

}  // namespace theseus::transport
