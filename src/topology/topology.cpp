#include "topology/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace theseus::topology {
namespace {

/// The next word of `text`, cut off its front; empty at the end.
std::string_view nextWord(std::string_view& text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t end = std::min(text.find(' ', begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

bool parseInt(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

bool Topology::allShareMemory() const {
  return std::all_of(places_.begin(), places_.end(), [this](const RankPlace& place) {
    return place.memoryDomain == places_.front().memoryDomain;
  });
}

std::vector<std::vector<Rank>> Topology::domains() const {
  std::vector<std::vector<Rank>> domains;
  for (Rank rank = 0; rank < ranks(); ++rank) {
    auto found = std::find_if(domains.begin(), domains.end(), [&](const std::vector<Rank>& domain) {
      return shareMemory(domain.front(), rank);
    });
    if (found == domains.end()) found = domains.insert(domains.end(), std::vector<Rank>{});
    found->push_back(rank);
  }
  return domains;
}

std::string toText(const RankPlace& place) {
  return fmt::format("host={} domain={} cores={}", place.host, place.memoryDomain, place.cores);
}

Result<RankPlace> parseRankPlace(std::string_view text) {
  RankPlace place;
  const std::string_view whole = text;
  bool hasDomain = false;
  for (std::string_view word = nextWord(text); !word.empty(); word = nextWord(text)) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    if (key == "host") {
      place.host = value;
    } else if (key == "domain") {
      place.memoryDomain = value;
      hasDomain = true;
    } else if (key != "cores" || !parseInt(value, place.cores) || place.cores < 1) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("place '{}': '{}' is not host=, domain= or cores=N", whole, word));
    }
  }
  if (!hasDomain) return fail(ErrorCode::kInvalidArgument, fmt::format("place '{}' has no domain=", whole));
  return place;
}

std::string toText(const Topology& topology) {
  std::string text;
  for (Rank rank = 0; rank < topology.ranks(); ++rank)
    text += fmt::format("rank {} {}\n", rank, toText(topology.place(rank)));
  return text;
}

Result<Topology> parseTopology(std::string_view text) {
  std::vector<RankPlace> places;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view whole = line;
    int rank = -1;
    if (nextWord(line) != "rank" || !parseInt(nextWord(line), rank) ||
        rank != static_cast<int>(places.size())) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("topology: line '{}' is not that of rank {}", whole, places.size()));
    }
    auto place = parseRankPlace(line);
    if (!place) return fail(place.error());
    places.push_back(std::move(*place));
  }
  if (places.empty()) return fail(ErrorCode::kInvalidArgument, "topology: no ranks");
  return Topology(std::move(places));
}

}  // namespace theseus::topology
