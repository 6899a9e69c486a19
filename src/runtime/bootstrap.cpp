#include "runtime/bootstrap.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "runtime/bootstrap_rendezvous.h"

namespace theseus::runtime {

int remainingMilliseconds(Deadline deadline, int longest) {
  const auto rest =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(rest, 0, longest));
}

void appendText(std::string& out, std::string_view text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(length >> shift));
  out += text;
}

std::optional<std::string_view> takeText(std::string_view& in) {
  if (in.size() < 4) return std::nullopt;
  std::uint32_t length = 0;
  for (int i = 0; i < 4; ++i)
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  if (in.size() - 4 < length) return std::nullopt;
  const std::string_view text = in.substr(4, length);
  in.remove_prefix(4 + std::size_t{length});
  return text;
}

std::string encodeError(const Error& error) {
  return std::string(1, static_cast<char>(error.code)) + error.message;
}

Error decodeError(std::string_view payload) {
  if (payload.empty() ||
      static_cast<unsigned char>(payload[0]) > static_cast<unsigned char>(ErrorCode::kNotFound)) {
    return Error{ErrorCode::kTransport, "rank 0 sent an error that this rank cannot read"};
  }
  return Error{static_cast<ErrorCode>(payload[0]), std::string(payload.substr(1))};
}

std::string rankList(const std::vector<Rank>& ranks) {
  constexpr std::size_t kNamed = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(ranks.size(), kNamed);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += (i + 1 == ranks.size()) ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

std::string secondsText(std::chrono::milliseconds duration) {
  return fmt::format("{:g} s", static_cast<double>(duration.count()) / 1000.0);
}

Result<std::unique_ptr<Rendezvous>> makeTcpRendezvous(const CommunicatorOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {} of {} ranks makes no sense: ranks count from 0 to size - 1 (RANK, WORLD_SIZE)",
                    options.rank, options.size));
  }
  if (options.masterPort < 1 || options.masterPort > 65535) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the master's port is {}, it must be between 1 and 65535 (MASTER_PORT)",
                            options.masterPort));
  }
  if (options.timeout <= std::chrono::milliseconds::zero()) {
    return fail(ErrorCode::kInvalidArgument, "the time-out must be greater than zero");
  }
  return options.rank == 0 ? makeRendezvousMaster(options) : makeRendezvousMember(options);
}

}  // namespace theseus::runtime
