// Where the ranks of a job are: plain data with a text form, made by discovery, read by whoever chooses
// transports and schedules. Values, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "theseus/result.h"

namespace theseus::topology {

/// One rank's place. Ranks whose `memoryDomain` is equal can map each other's memory (one kernel, one network
/// namespace).
struct RankPlace {
  std::string host;          // name, for people
  std::string memoryDomain;  // opaque
  int cores = 1;             // that this rank's process may use
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

class Topology {
 public:
  /// places[r] is rank r's.
  explicit Topology(std::vector<RankPlace> places) : places_(std::move(places)) {}

  int ranks() const { return static_cast<int>(places_.size()); }
  const RankPlace& place(Rank rank) const { return places_[static_cast<std::size_t>(rank)]; }
  bool shareMemory(Rank a, Rank b) const { return place(a).memoryDomain == place(b).memoryDomain; }
  bool allShareMemory() const;
  /// Ranks of each memory domain, domains by their lowest rank.
  std::vector<std::vector<Rank>> domains() const;
  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  std::vector<RankPlace> places_;
};

/// "host=node7 domain=abc cores=2"; values hold no spaces.
std::string toText(const RankPlace& place);
Result<RankPlace> parseRankPlace(std::string_view text);
/// One line for each rank: "rank 0 host=... domain=... cores=...".
std::string toText(const Topology& topology);
Result<Topology> parseTopology(std::string_view text);

}  // namespace theseus::topology
