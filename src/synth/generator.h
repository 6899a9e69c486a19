// What a generator is inside this module: its description, a bound on its size and its expansion. Plain
// functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedule/builder.h"
#include "synth/generators.h"

namespace theseus::synth {

/// A checked call with the defaults filled in.
class Arguments {
 public:
  Arguments(const GeneratorCall& call, const GeneratorInfo& info) : call_(&call), info_(&info) {}
  int ranks() const { return call_->ranks; }
  Collective collective() const { return call_->collective; }
  double number(std::string_view parameter) const;
  std::uint32_t count(std::string_view parameter) const {
    return static_cast<std::uint32_t>(number(parameter));
  }
  Rank rank(std::string_view parameter) const { return static_cast<Rank>(number(parameter)); }
  /// A builder with the schedule's name and provenance.
  schedule::Builder builder() const;

 private:
  const GeneratorCall* call_;
  const GeneratorInfo* info_;
};

struct Generator {
  GeneratorInfo info;
  /// Ops over all ranks, roughly and not too low; expansions that would be too large are refused before they
  /// start.
  double (*opCount)(const Arguments& arguments);
  Result<schedule::Schedule> (*expand)(const Arguments& arguments);
};

Generator ringGenerator();
Generator halvingDoublingGenerator();
Generator allPairsGenerator();
Generator stagedAllPairsGenerator();
Generator binaryTreeGenerator();
Generator chainGenerator();
Generator disseminationGenerator();
Generator stragglerAwareGenerator();

inline schedule::ChunkRange input(std::uint32_t index, std::uint32_t size = 1) {
  return {schedule::BufferKind::kInput, index, size};
}
inline schedule::ChunkRange output(std::uint32_t index, std::uint32_t size = 1) {
  return {schedule::BufferKind::kOutput, index, size};
}
inline schedule::ChunkRange scratch(std::uint32_t index, std::uint32_t size = 1) {
  return {schedule::BufferKind::kScratch, index, size};
}

/// One new block on every rank, in rank order.
std::vector<schedule::BlockBuilder> blockOnEveryRank(schedule::Builder& builder, int ranks);

/// (value + offset) mod ranks, for offsets of either sign.
inline Rank shifted(Rank value, int offset, int ranks) { return ((value + offset) % ranks + ranks) % ranks; }

}  // namespace theseus::synth
