// Reductions up a tree, broadcasts down it, both in pipelined segments. The tree is binary or a chain.
#include <algorithm>
#include <optional>

#include "synth/generator.h"

namespace theseus::synth {
namespace {

using schedule::BlockBuilder;
using schedule::Builder;

/// Segments that may be on the way from a child to its parent; bounds the scratch.
constexpr std::uint32_t kWindow = 4;

/// Ranks are numbered from the root on; `arity` 1 is a chain, 2 a binary heap.
struct Tree {
  int ranks;
  int arity;
  Rank root;

  int position(Rank rank) const { return shifted(rank, -root, ranks); }
  std::optional<Rank> parent(Rank rank) const {
    if (rank == root) return std::nullopt;
    return shifted(root, (position(rank) - 1) / arity, ranks);
  }
  /// Which of its parent's children a rank is.
  std::uint32_t childNumber(Rank rank) const {
    return static_cast<std::uint32_t>((position(rank) - 1) % arity);
  }
  std::vector<Rank> children(Rank rank) const {
    std::vector<Rank> list;
    for (int number = 1; number <= arity; ++number) {
      const int child = position(rank) * arity + number;
      if (child < ranks) list.push_back(shifted(root, child, ranks));
    }
    return list;
  }
};

std::vector<BlockBuilder> connectedBlocks(Builder& builder, const Tree& tree) {
  std::vector<BlockBuilder> blocks = blockOnEveryRank(builder, tree.ranks);
  for (Rank rank = 0; rank < tree.ranks; ++rank) {
    if (const auto parent = tree.parent(rank)) {
      builder.connect(blocks[static_cast<std::size_t>(*parent)], blocks[static_cast<std::size_t>(rank)]);
    }
  }
  return blocks;
}

/// Adds a reduction to the root's output. `rootDone`, if given, is a semaphore of the root released after
/// each segment.
class ReduceUp {
 public:
  ReduceUp(Builder& builder, const Tree& tree, std::uint32_t segments, std::optional<std::uint32_t> rootDone)
      : tree_(tree),
        segments_(segments),
        window_(std::min(kWindow, segments)),
        rootDone_(rootDone),
        blocks_(connectedBlocks(builder, tree)) {
    for (Rank rank = 0; rank < tree.ranks; ++rank) {
      const auto children = static_cast<std::uint32_t>(tree.children(rank).size());
      slots_.push_back(builder.scratch(rank, children * window_));
    }
    for (Rank rank = 0; rank < tree.ranks; ++rank) {
      for (std::uint32_t segment = 0; segment < segments; ++segment) emit(rank, segment);
    }
  }

 private:
  schedule::ChunkRange slot(Rank rank, std::uint32_t child, std::uint32_t segment) const {
    return scratch(slots_[static_cast<std::size_t>(rank)] + child * window_ + segment % window_);
  }

  void emit(Rank rank, std::uint32_t segment) {
    BlockBuilder& block = blocks_[static_cast<std::size_t>(rank)];
    const std::vector<Rank> children = tree_.children(rank);
    schedule::ChunkRange partial = input(segment);
    std::vector<schedule::ChunkRange> sources = {partial};
    for (std::uint32_t child = 0; child < children.size(); ++child) {
      block.wait(children[child]);
      sources.push_back(slot(rank, child, segment));
    }
    if (rank == tree_.root) {
      block.reduce(std::move(sources), output(segment));
      if (rootDone_) block.release(*rootDone_);
    } else {
      if (!children.empty()) {
        partial = slot(rank, 0, segment);
        block.reduce(std::move(sources), partial);
      }
      const Rank parent = *tree_.parent(rank);
      if (segment >= window_) block.wait(parent);  // the slot's last content was consumed
      block.putWithSignal(parent, partial, slot(parent, tree_.childNumber(rank), segment));
    }
    if (segment + window_ >= segments_) return;
    for (const Rank child : children) block.signal(child);
  }

  Tree tree_;
  std::uint32_t segments_;
  std::uint32_t window_;
  std::optional<std::uint32_t> rootDone_;
  std::vector<BlockBuilder> blocks_;
  std::vector<std::uint32_t> slots_;
};

/// Adds a broadcast of the root's `source` buffer to every other rank's output. `ready`, if given, is a
/// semaphore of the root taken before each segment.
void broadcastDown(Builder& builder, const Tree& tree, std::uint32_t segments,
                   std::optional<std::uint32_t> ready) {
  std::vector<BlockBuilder> blocks = connectedBlocks(builder, tree);
  const auto fromRoot = ready ? schedule::BufferKind::kOutput : schedule::BufferKind::kInput;
  for (Rank rank = 0; rank < tree.ranks; ++rank) {
    BlockBuilder& block = blocks[static_cast<std::size_t>(rank)];
    for (std::uint32_t segment = 0; segment < segments; ++segment) {
      if (rank != tree.root) block.wait(*tree.parent(rank));
      if (rank == tree.root && ready) block.acquire(*ready);
      const auto buffer = rank == tree.root ? fromRoot : schedule::BufferKind::kOutput;
      for (const Rank child : tree.children(rank)) {
        block.putWithSignal(child, {buffer, segment, 1}, output(segment));
      }
    }
  }
  if (!ready) blocks[static_cast<std::size_t>(tree.root)].copy(input(0, segments), output(0, segments));
}

double opCount(const Arguments& arguments) { return 12.0 * arguments.ranks() * arguments.number("segments"); }

Result<schedule::Schedule> expandTree(const Arguments& arguments, int arity) {
  const Tree tree{.ranks = arguments.ranks(), .arity = arity, .root = arguments.rank("root")};
  if (tree.root >= tree.ranks) {
    return fail(ErrorCode::kInvalidArgument,
                "root must be one of the " + std::to_string(tree.ranks) + " ranks");
  }
  const std::uint32_t segments = arguments.count("segments");
  Builder builder = arguments.builder();
  builder.bufferMode(schedule::BufferMode::kEither).chunks(segments, segments, 0);
  switch (arguments.collective()) {
    case Collective::kBroadcast:
      builder.root(tree.root);
      broadcastDown(builder, tree, segments, std::nullopt);
      break;
    case Collective::kReduce:
      builder.root(tree.root);
      ReduceUp(builder, tree, segments, std::nullopt);
      break;
    default: {
      const std::uint32_t summed = builder.semaphore(tree.root);
      ReduceUp(builder, tree, segments, summed);
      broadcastDown(builder, tree, segments, summed);
      break;
    }
  }
  return std::move(builder).build();
}

GeneratorInfo treeInfo(std::string name, std::string doc) {
  return {.name = std::move(name),
          .collectives = {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce},
          .minRanks = 1,
          .parameters = {{"root", 0, 0, 4095, "the call's root; for an all-reduce, the top of the tree"},
                         {"segments", 8, 1, 65536, "pieces that follow each other through the tree"}},
          .doc = std::move(doc),
          .automatic = true};
}

}  // namespace

Generator binaryTreeGenerator() {
  return {.info = treeInfo(
              "binary_tree",
              "Up and down a binary tree, pipelined in segments: depth log2(p), every link carries the whole "
              "message once each way. For small messages and many ranks. Sanders, Speck and Traeff, Two-tree "
              "algorithms, Parallel Computing 35 (2009), section 2 (one tree)."),
          .opCount = opCount,
          .expand = [](const Arguments& arguments) { return expandTree(arguments, 2); }};
}

Generator chainGenerator() {
  return {
      .info = treeInfo(
          "chain",
          "As binary_tree, with the ranks in one line: every rank sends the message once, so the best for "
          "large broadcasts and reductions with many segments. Known as pipeline or linear array."),
      .opCount = opCount,
      .expand = [](const Arguments& arguments) { return expandTree(arguments, 1); }};
}

}  // namespace theseus::synth
