// Chooses the message sizes at which the dynamic passes examine a plan.
#include <algorithm>
#include <numeric>

#include "schedule/verify/passes.h"
#include "schedule/verify/program.h"

namespace theseus::schedule::verifying {
namespace {

constexpr std::uint32_t kElementBytes = 4;
constexpr std::uint64_t kMaxCommonMultiple = 5040;
constexpr std::uint64_t kMaxIterations = 8;

class SizeChooser {
 public:
  explicit SizeChooser(const Schedule& schedule) : schedule_(schedule), collective_(schedule.collective()) {
    grain_ = std::lcm<std::uint64_t>(schedule.bufferAlignment, kElementBytes);
    forEachOp(schedule, [this](const OpPlace&, const Op& op) {
      if (op.group && std::lcm(slices_, std::uint64_t{op.group->size}) <= kMaxCommonMultiple) {
        slices_ = std::lcm(slices_, std::uint64_t{op.group->size});
      }
      unit_ = std::max(unit_, op.pipelineUnitBytes);
    });
    for (const RankPlan& rank : schedule.ranks) {
      for (const std::int64_t initial : rank.semaphores) {
        iterations_ =
            std::max(iterations_, static_cast<std::uint64_t>(std::max<std::int64_t>(initial, 0)) + 2);
      }
    }
    iterations_ = std::min(iterations_, kMaxIterations);
    chunks_ = countedChunks();
  }

  std::vector<ExaminedSize> choose() {
    const std::uint64_t smallChunk = grain_ * slices_;
    if (unit_ != 0) addChunks(chunkFor(unit_ * iterations_));
    addChunks(smallChunk);
    if (slices_ > 1) addChunks(smallChunk + grain_);
    // Not divisible by the chunks, and slices of unequal length within a chunk.
    addBytes(chunks_ * (smallChunk + grain_) + grain_ * (chunks_ / 2 + 1));
    // Fewer units than chunks: most ranges are empty.
    addBytes(grain_ * std::max<std::uint64_t>(1, chunks_ / 3));
    if (sizes_.empty()) addWithinRange();
    return classified();
  }

 private:
  std::vector<ExaminedSize> classified() const {
    std::vector<ExaminedSize> result;
    bool evenExists = false;
    for (const bool even : {true, false}) {
      for (const MessageSize& size : sizes_) {
        if (isEven(schedule_, size) != even) continue;
        evenExists = evenExists || even;
        if (schedule_.bufferMode != BufferMode::kInPlace) result.push_back({size, false, even, evenExists});
        if (schedule_.bufferMode != BufferMode::kOutOfPlace) result.push_back({size, true, even, evenExists});
      }
    }
    return result;
  }

  /// Chunks of what the user counts: one rank's contribution or result, or the whole vector.
  std::uint64_t countedChunks() const {
    if (schedule_.ranks.empty()) return 1;
    const std::uint64_t ranks = schedule_.ranks.size();
    std::uint64_t chunks = 1;
    for (const RankPlan& rank : schedule_.ranks) {
      chunks = std::max<std::uint64_t>({chunks, rank.inputChunks, rank.outputChunks});
    }
    const bool perRank = collective_ == Collective::kAllGather || collective_ == Collective::kReduceScatter ||
                         collective_ == Collective::kAllToAll;
    return std::max<std::uint64_t>(1, perRank ? chunks / ranks : chunks);
  }

  /// A chunk of at least `bytes` that every group and pipeline of the plan divides.
  std::uint64_t chunkFor(std::uint64_t bytes) const {
    const std::uint64_t step = unit_ * (slices_ <= iterations_ ? slices_ : 1);
    return (bytes + step - 1) / step * step;
  }

  void addChunks(std::uint64_t chunkBytes) { addBytes(chunks_ * chunkBytes); }

  MessageSize sizeOf(std::uint64_t countedBytes) const {
    if (collective_ != Collective::kCustom) {
      return messageSize(collective_, schedule_.rankCount(), countedBytes / kElementBytes, kElementBytes);
    }
    const std::uint64_t chunkBytes = countedBytes / chunks_ / kElementBytes * kElementBytes;
    MessageSize size;
    for (const RankPlan& rank : schedule_.ranks) {
      size.inputBytes = std::max(size.inputBytes, rank.inputChunks * chunkBytes);
      size.outputBytes = std::max(size.outputBytes, rank.outputChunks * chunkBytes);
    }
    size.elementBytes = kElementBytes;
    return size;
  }

  std::uint64_t messageBytes(const MessageSize& size) const {
    return collective_ == Collective::kAllGather || size.inputBytes == 0 ? size.outputBytes : size.inputBytes;
  }

  void addBytes(std::uint64_t countedBytes) {
    const MessageSize size = sizeOf(countedBytes);
    const std::uint64_t bytes = messageBytes(size);
    if (bytes < schedule_.minMessageBytes || bytes > schedule_.maxMessageBytes) return;
    for (const MessageSize& known : sizes_) {
      if (known.inputBytes == size.inputBytes && known.outputBytes == size.outputBytes) return;
    }
    sizes_.push_back(size);
  }

  /// The usual sizes all lie outside the plan's range: the smallest sizes inside it, even and uneven.
  void addWithinRange() {
    const std::uint64_t perCounted =
        std::max<std::uint64_t>(1, messageBytes(sizeOf(kElementBytes)) / kElementBytes);
    const std::uint64_t least = (schedule_.minMessageBytes + perCounted - 1) / perCounted;
    const std::uint64_t even = chunks_ * grain_;
    addBytes((least + even - 1) / even * even);
    const std::uint64_t uneven = (least + grain_ - 1) / grain_ * grain_;
    addBytes(uneven % even == 0 ? uneven + grain_ : uneven);
    if (sizes_.empty()) addBytes((least + kElementBytes - 1) / kElementBytes * kElementBytes);
  }

  const Schedule& schedule_;
  Collective collective_;
  std::uint64_t grain_ = 1;       // bytes; every boundary within a chunk is a multiple
  std::uint64_t slices_ = 1;      // common multiple of the thread block groups
  std::uint64_t unit_ = 0;        // bytes; largest unit of a pipeline
  std::uint64_t iterations_ = 3;  // enough to use up every semaphore's initial value and then some
  std::uint64_t chunks_ = 1;
  std::vector<MessageSize> sizes_;
};

}  // namespace

std::vector<ExaminedSize> examinedSizes(const Schedule& schedule) { return SizeChooser(schedule).choose(); }

}  // namespace theseus::schedule::verifying
