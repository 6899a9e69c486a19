#include "runtime/hello.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "base/hmac.h"

namespace theseus::runtime {
namespace {

constexpr std::string_view kMagic = "THSH";
constexpr std::uint16_t kVersion = 1;

template <class Integer>
void append(std::string& text, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    text.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

template <class Integer>
Integer read(std::string_view text, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  }
  return static_cast<Integer>(value);
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes)
    text +=
        (c >= 32 && c < 127) ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string encode(const HelloIdentity& self) {
  std::string text(kMagic);
  append(text, kVersion);
  append(text, static_cast<std::uint8_t>(self.purpose));
  append(text, std::uint8_t{0});
  append(text, self.rank);
  append(text, self.size);
  append(text, self.masterPort);
  std::string challenge(32, '\0');
  base::fillRandom(challenge.data(), challenge.size());
  return text + challenge;
}

const char* verdictText(HelloVerdict verdict) {
  switch (verdict) {
    case HelloVerdict::kAccepted:
      return "accepted";
    case HelloVerdict::kWrongSecret:
      return "the secrets differ (THESEUS_SECRET must be the same on all ranks)";
    case HelloVerdict::kOtherJob:
      return "it belongs to another job (its MASTER_PORT or the purpose of the connection differs)";
    case HelloVerdict::kOtherSize:
      return "the numbers of ranks differ (WORLD_SIZE must be the same on all ranks)";
  }
  return "it gave no known reason";
}

}  // namespace

Hello::Hello(Side side, const HelloIdentity& self, std::string secret)
    : side_(side), self_(self), secret_(std::move(secret)), ownHello_(encode(self)) {
  if (side_ == Side::kConnector) output_ = ownHello_;
}

std::string Hello::takeOutput() { return std::exchange(output_, {}); }

std::string Hello::proof(Side side) const {
  // The side's name keeps one side's proof from being sent back as the other's; both challenges keep old
  // proofs from being used again.
  const bool own = side_ == Side::kConnector;
  std::string message = side == Side::kConnector ? "theseus connector" : "theseus acceptor";
  message += own ? ownHello_ : peerHello_;
  message += own ? peerHello_ : ownHello_;
  const base::Digest256 digest = base::hmacSha256(secret_, message);
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

Status Hello::refuse(HelloVerdict verdict) {
  verdict_ = verdict;
  step_ = Step::kFailed;
  if (side_ == Side::kAcceptor) {
    // A refusal carries no proof: a stranger learns nothing that it could use.
    output_ = std::string(1, static_cast<char>(verdict)) + std::string(kProofBytes, '\0');
    if (verdict == HelloVerdict::kOtherSize) {
      output_ = std::string(1, static_cast<char>(verdict)) + proof(Side::kAcceptor);
    }
  }
  std::string what = fmt::format("the handshake failed: {}", verdictText(verdict));
  if (verdict == HelloVerdict::kOtherSize) {
    what = fmt::format(
        "rank {} says that the job has {} ranks, rank {} says {}; WORLD_SIZE must be the same on all ranks",
        peer_.rank, peer_.size, self_.rank, self_.size);
  }
  return fail(ErrorCode::kMismatch, what);
}

Status Hello::takeHello(std::string& input) {
  const std::size_t compared = std::min(input.size(), kMagic.size());
  if (input.compare(0, compared, kMagic.substr(0, compared)) != 0) {
    step_ = Step::kFailed;
    return fail(ErrorCode::kMismatch, fmt::format("the other side does not speak Theseus (it sent \"{}\")",
                                                  printable(std::string_view(input).substr(0, 24))));
  }
  if (input.size() < kHelloBytes) return {};
  peerHello_ = input.substr(0, kHelloBytes);
  input.erase(0, kHelloBytes);
  if (side_ == Side::kAcceptor) output_ = ownHello_;
  const auto version = read<std::uint16_t>(peerHello_, 4);
  if (version != kVersion) {
    step_ = Step::kFailed;
    return fail(ErrorCode::kMismatch,
                fmt::format("the other side speaks version {} of the handshake, this rank version {}; all "
                            "ranks need the same release of Theseus",
                            version, kVersion));
  }
  peer_.purpose = static_cast<HelloPurpose>(read<std::uint8_t>(peerHello_, 6));
  peer_.rank = read<std::int32_t>(peerHello_, 8);
  peer_.size = read<std::int32_t>(peerHello_, 12);
  peer_.masterPort = read<std::int32_t>(peerHello_, 16);
  step_ = Step::kProof;
  if (side_ == Side::kConnector) output_ += proof(Side::kConnector);
  return {};
}

Status Hello::takeProofAsAcceptor(std::string& input) {
  if (input.size() < kProofBytes) return {};
  base::Digest256 expected{}, given{};
  std::memcpy(expected.data(), proof(Side::kConnector).data(), kProofBytes);
  std::memcpy(given.data(), input.data(), kProofBytes);
  input.erase(0, kProofBytes);
  if (!base::equalInConstantTime(expected, given)) return refuse(HelloVerdict::kWrongSecret);
  if (peer_.masterPort != self_.masterPort || peer_.purpose != self_.purpose)
    return refuse(HelloVerdict::kOtherJob);
  if (peer_.size != self_.size || peer_.rank < 0 || peer_.rank >= self_.size)
    return refuse(HelloVerdict::kOtherSize);
  output_ += std::string(1, static_cast<char>(HelloVerdict::kAccepted)) + proof(Side::kAcceptor);
  step_ = Step::kDone;
  return {};
}

Status Hello::takeProofAsConnector(std::string& input) {
  if (input.size() < 1 + kProofBytes) return {};
  const auto verdict = static_cast<HelloVerdict>(input[0]);
  base::Digest256 expected{}, given{};
  std::memcpy(expected.data(), proof(Side::kAcceptor).data(), kProofBytes);
  std::memcpy(given.data(), input.data() + 1, kProofBytes);
  input.erase(0, 1 + kProofBytes);
  const bool proven = base::equalInConstantTime(expected, given);
  // Only a proven acceptor may say that the sizes differ: that answer ends the job.
  if (verdict == HelloVerdict::kOtherSize && !proven) return refuse(HelloVerdict::kWrongSecret);
  if (verdict != HelloVerdict::kAccepted) return refuse(verdict);
  if (!proven) return refuse(HelloVerdict::kWrongSecret);
  step_ = Step::kDone;
  return {};
}

Status Hello::feed(std::string& input) {
  if (step_ == Step::kHello) {
    if (auto status = takeHello(input); !status) return status;
  }
  if (step_ == Step::kProof)
    return side_ == Side::kAcceptor ? takeProofAsAcceptor(input) : takeProofAsConnector(input);
  return {};
}

void StrangerLog::dropped(const std::string& address, const std::string& why) {
  constexpr std::uint64_t kLinesInFull = 8;
  ++count_;
  last_ = fmt::format("{}: {}", address, why);
  if (count_ <= kLinesInFull) {
    logLine(fmt::format("{}: dropped a connection from {}: {}", where_, address, why));
  } else if (std::has_single_bit(count_)) {
    logLine(
        fmt::format("{}: dropped {} connections so far, the last from {}: {}", where_, count_, address, why));
  }
}

void logLine(const std::string& text) { std::fprintf(stderr, "theseus: %s\n", text.c_str()); }

}  // namespace theseus::runtime
