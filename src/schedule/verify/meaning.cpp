// Pass 5: meaning. Every cell holds, symbolically, a sum of ranks' inputs at one position; after the last op
// the output must hold what the collective promises.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "schedule/verify/shapes.h"
#include "schedule/verify/trace.h"

namespace theseus::schedule::verifying {
namespace {

/// Multisets of ranks, each stored once: equal sets have equal numbers. Set 0 is empty.
class RankSets {
 public:
  explicit RankSets(std::size_t ranks) : most_(2 * ranks + 2) {
    intern({});
    for (std::size_t rank = 0; rank < ranks; ++rank) single_.push_back(intern({static_cast<Rank>(rank)}));
  }

  std::uint32_t single(Rank rank) const { return single_[static_cast<std::size_t>(rank)]; }

  /// The multiset sum. Grows no further once it holds far more than any right answer.
  std::uint32_t sum(std::uint32_t left, std::uint32_t right) {
    if (left > right) std::swap(left, right);
    const std::uint64_t key = (std::uint64_t{left} << 32) | right;
    if (const auto known = sums_.find(key); known != sums_.end()) return known->second;
    std::vector<Rank> merged;
    std::merge(sets_[left].begin(), sets_[left].end(), sets_[right].begin(), sets_[right].end(),
               std::back_inserter(merged));
    if (merged.size() > most_) merged.resize(most_);
    const std::uint32_t result = intern(merged);
    sums_[key] = result;
    return result;
  }

  const std::vector<Rank>& ranksOf(std::uint32_t set) const { return sets_[set]; }
  std::uint32_t intern(const std::vector<Rank>& ranks) {
    const auto [place, isNew] = numbers_.try_emplace(ranks, static_cast<std::uint32_t>(sets_.size()));
    if (isNew) sets_.push_back(ranks);
    return place->second;
  }

 private:
  std::size_t most_;
  std::vector<std::vector<Rank>> sets_;
  std::map<std::vector<Rank>, std::uint32_t> numbers_;
  std::vector<std::uint32_t> single_;
  std::unordered_map<std::uint64_t, std::uint32_t> sums_;  // looked up only, never iterated
};

/// Contents of a cell: the sum of the inputs of `set` at cell `origin` of the input.
struct Value {
  enum class Kind : std::uint8_t { kUndefined, kData, kPoison };  // kPoison: wrong already, and reported
  Kind kind = Kind::kUndefined;
  bool packet = false;
  std::uint32_t origin = 0;
  std::uint32_t set = 0;
  std::int32_t writer = -1;  // number of the step that wrote it
};

class MeaningPass {
 public:
  MeaningPass(const MeaningInput& input, Report& report)
      : program_(input.program),
        trace_(input.trace),
        padded_(input.padded),
        report_(report),
        sets_(input.program.schedule->ranks.size()) {
    for (const Space& space : program_.spaces) cells_.emplace_back(space.cells);
    collective_ = program_.schedule->collective();
    ranks_ = program_.schedule->rankCount();
    std::vector<Rank> all;
    for (Rank rank = 0; rank < ranks_; ++rank) all.push_back(rank);
    everyRank_ = sets_.intern(all);
    fillInputs();
  }

  void run() {
    for (const TraceEvent& event : trace_) {
      const Step& step = program_.threads[event.thread].steps[event.step];
      steps_.push_back(&step);
      for (const Move& move : step.moves) apply(step, move);
      if (report_.full()) return;
    }
    if (!report_.empty()) return;
    for (Rank rank = 0; rank < ranks_; ++rank) checkOutput(rank);
  }

 private:
  void fillInputs() {
    for (Rank rank = 0; rank < ranks_; ++rank) {
      if (collective_ == Collective::kBroadcast && rank != program_.schedule->root) continue;
      const CellRange input = program_.buffer(rank, BufferKind::kInput);
      for (std::uint32_t i = 0; i < program_.cellsOf(rank, BufferKind::kInput); ++i) {
        cells_[input.space][input.first + i] = {Value::Kind::kData, false, i, sets_.single(rank), -1};
      }
    }
  }

  void apply(const Step& step, const Move& move) {
    const bool copies = move.sources.size() == 1 || isPairwise(traits(step.code));
    const auto writer = static_cast<std::int32_t>(steps_.size() - 1);
    for (std::uint32_t i = 0; i < move.cells; ++i) {
      Value result;
      for (std::size_t k = 0; k < move.sources.size(); ++k) {
        const CellRange& range = move.sources[k];
        const Value& value = cells_[range.space][range.first + i];
        if (copies && padded_ && value.kind == Value::Kind::kUndefined) continue;
        const Value operand = checked(step, range, i, value);
        result = k == 0 || copies ? operand : combine(step, result, operand);
      }
      result.writer = writer;
      for (const CellRange& range : move.destinations) {
        result.packet = range.packet;
        cells_[range.space][range.first + i] = result;
      }
    }
  }

  Value checked(const Step& step, const CellRange& range, std::uint32_t offset, const Value& value) {
    if (value.kind == Value::Kind::kPoison) return value;
    const Space& space = program_.spaces[range.space];
    const std::uint64_t byte = (range.first + offset) * program_.cellBytes;
    if (value.kind == Value::Kind::kUndefined) {
      add("uninitialized-read", step.place, std::nullopt,
          fmt::format("{} reads rank {} '{}' at byte {}, which nothing has written", traits(step.code).name,
                      space.rank, name(space.kind), byte));
      return {Value::Kind::kPoison};
    }
    if (value.packet != range.packet) {
      add("packet-mismatch", step.place, writerOf(value),
          fmt::format("{} reads rank {} '{}' at byte {} as {}, it was written as {}", traits(step.code).name,
                      space.rank, name(space.kind), byte, range.packet ? "packets" : "plain data",
                      value.packet ? "packets" : "plain data"));
      return {Value::Kind::kPoison};
    }
    return value;
  }

  Value combine(const Step& step, const Value& left, const Value& right) {
    if (left.kind == Value::Kind::kPoison || right.kind == Value::Kind::kPoison)
      return {Value::Kind::kPoison};
    if (left.origin != right.origin) {
      add("mixed-chunks", step.place, writerOf(right),
          fmt::format("{} adds {} to {}: different positions of the input", traits(step.code).name,
                      describe(right), describe(left)));
      return {Value::Kind::kPoison};
    }
    Value result = left;
    result.set = sets_.sum(left.set, right.set);
    return result;
  }

  std::optional<OpPlace> writerOf(const Value& value) const {
    if (value.writer < 0) return std::nullopt;
    return steps_[static_cast<std::size_t>(value.writer)]->place;
  }

  std::string describe(const Value& value) const {
    if (value.kind == Value::Kind::kUndefined) return "nothing";
    std::string ranks;
    for (const Rank rank : sets_.ranksOf(value.set))
      ranks += fmt::format("{}{}", ranks.empty() ? "" : "+", rank);
    return fmt::format("input byte {} of rank {}", value.origin * program_.cellBytes, ranks);
  }

  /// What cell `i` of a rank's output must hold; nullopt where the collective leaves it open.
  std::optional<Value> expected(Rank rank, std::uint32_t i) const {
    const std::uint32_t inputCells = program_.cellsOf(rank, BufferKind::kInput);
    const std::uint32_t outputCells = program_.cellsOf(rank, BufferKind::kOutput);
    const auto self = static_cast<std::uint32_t>(rank);
    const auto count = static_cast<std::uint32_t>(ranks_);
    const auto make = [](std::uint32_t origin, std::uint32_t set) {
      return Value{Value::Kind::kData, false, origin, set, -1};
    };
    switch (collective_) {
      case Collective::kAllReduce:
        return make(i, everyRank_);
      case Collective::kReduceScatter:
        return make(self * outputCells + i, everyRank_);
      case Collective::kAllGather:
        return make(i % inputCells, sets_.single(static_cast<Rank>(i / inputCells)));
      case Collective::kBroadcast:
        return make(i, sets_.single(program_.schedule->root));
      case Collective::kReduce:
        if (rank != program_.schedule->root) return std::nullopt;
        return make(i, everyRank_);
      case Collective::kAllToAll: {
        const std::uint32_t block = outputCells / count;
        return make(self * block + i % block, sets_.single(static_cast<Rank>(i / block)));
      }
      case Collective::kSendRecv:
        return make(i, sets_.single((rank + ranks_ - 1) % ranks_));
      default:
        return std::nullopt;
    }
  }

  void checkOutput(Rank rank) {
    const CellRange output = program_.buffer(rank, BufferKind::kOutput);
    for (std::uint32_t i = 0; i < program_.cellsOf(rank, BufferKind::kOutput) && !report_.full(); ++i) {
      const std::optional<Value> wanted = expected(rank, i);
      const Value& value = cells_[output.space][output.first + i];
      if (!wanted || value.kind == Value::Kind::kPoison) continue;
      if (value.kind == Value::Kind::kData && !value.packet && value.origin == wanted->origin &&
          value.set == wanted->set) {
        continue;
      }
      addWrong(rank, i, value, *wanted);
    }
  }

  void addWrong(Rank rank, std::uint32_t cell, const Value& value, const Value& wanted) {
    OpPlace place{rank};
    std::optional<OpPlace> writer = writerOf(value);
    if (writer) std::swap(place, *writer);
    add(wrongKind(value, wanted), place, writer,
        fmt::format("output byte {} of rank {} is {}, must be {}", cell * program_.cellBytes, rank,
                    describe(value), describe(wanted)));
  }

  std::string wrongKind(const Value& value, const Value& wanted) const {
    if (value.kind == Value::Kind::kUndefined) return "output-unwritten";
    if (value.origin != wanted.origin) return "wrong-chunk";
    const auto& have = sets_.ranksOf(value.set);
    const auto& want = sets_.ranksOf(wanted.set);
    if (std::adjacent_find(have.begin(), have.end()) != have.end()) return "double-contribution";
    if (std::includes(want.begin(), want.end(), have.begin(), have.end())) return "missing-contribution";
    return "wrong-contribution";
  }

  void add(std::string kind, const OpPlace& place, std::optional<OpPlace> second, std::string message) {
    report_.add({VerifyPass::kMeaning, std::move(kind), place, second,
                 std::move(message) + " (" + program_.describe() + ")"});
  }

  const Program& program_;
  const std::vector<TraceEvent>& trace_;
  bool padded_;
  Report& report_;
  RankSets sets_;
  Collective collective_ = Collective::kCustom;
  Rank ranks_ = 0;
  std::uint32_t everyRank_ = 0;
  std::vector<std::vector<Value>> cells_;
  std::vector<const Step*> steps_;
};

}  // namespace

void checkMeaning(const MeaningInput& input, Report& report) { MeaningPass(input, report).run(); }

}  // namespace theseus::schedule::verifying
