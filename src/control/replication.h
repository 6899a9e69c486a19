// How contents reach every rank: along a binomial tree rooted at their origin, long ones in pieces, each
// forwarded as it arrives. Needs transport that delivers; tolerates any order and repetition. Owned by the
// control plane; one thread; no IO.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "control/control_plane.h"
#include "control/entry.h"
#include "control/log.h"
#include "theseus/result.h"

namespace theseus::control {

/// The tree of `root` in a communicator of `size`: with v = rank − root mod size, the parent of v is v
/// without its highest bit.
Rank treeParent(Rank root, Rank rank, int size);
/// Children, the one with the largest subtree first.
std::vector<Rank> treeChildren(Rank root, Rank rank, int size);

/// Part `index` of an entry's content: bytes [index · pieceBytes, (index + 1) · pieceBytes) of it. An empty
/// content is one empty piece.
struct Piece {
  EntryId id;
  EntryKind kind = EntryKind::kSetExo;
  std::uint32_t contentBytes = 0;
  std::uint32_t pieceBytes = 0;
  std::uint32_t index = 0;
  std::string_view bytes;
};

constexpr std::size_t kPieceHeaderBytes = 56;
constexpr std::uint32_t kMaxPieces = 65536;  // of one content

std::string encodePiece(const Piece& piece, int size);
/// Strict, as decodeRoundMessage; `piece.bytes` points into `bytes`.
Result<Piece> decodePiece(std::string_view bytes, int size);

class Replication {
 public:
  using Send = std::function<void(Rank to, std::string bytes)>;
  /// `log` must outlive this.
  Replication(Rank rank, int size, const ControlLimits& limits, Log& log);

  /// Starts an entry of this rank, already in the log, on its way.
  void spread(const Entry& entry, const Send& send) const;
  /// A piece from a peer, `message` being its bytes: forwarded when new; the last one puts the entry into the
  /// log. Errors leave the state as it was; kMismatch: no rank that follows the protocol can have sent this.
  Status accept(Rank from, const Piece& piece, std::string_view message, const Send& send);

  /// Contents of which some pieces are here and some are not.
  std::size_t incomplete() const { return assemblies_.size(); }

 private:
  struct Key {
    Rank origin = 0;
    std::uint32_t incarnation = 0;
    std::uint64_t number = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Assembly {
    EntryId id;
    EntryKind kind = EntryKind::kSetExo;
    std::uint32_t contentBytes = 0;
    std::uint32_t pieceBytes = 0;
    std::uint32_t missing = 0;
    std::vector<std::string> pieces;
    std::vector<bool> arrived;
    void keep(const Piece& piece);
  };
  Status checkPossible(Rank from, const Piece& piece) const;
  Status checkWindow(const Piece& piece) const;
  Status checkSameContent(const Assembly& assembly, const Piece& piece) const;
  Status complete(const Assembly* rest, const Piece& last);

  Rank rank_;
  int size_;
  ControlLimits limits_;
  Log& log_;
  std::map<Key, Assembly> assemblies_;
};

}  // namespace theseus::control
