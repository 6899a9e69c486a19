#include "control/replication.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "control/message.h"

namespace theseus::control {
namespace {

static_assert(kPieceHeaderBytes == kMessagePrefixBytes + 32 + 4 + 4 + 4 + 4);

std::uint32_t positionFrom(Rank root, Rank rank, int size) {
  return static_cast<std::uint32_t>((rank - root + size) % size);
}

std::uint32_t pieceCount(std::uint32_t contentBytes, std::uint32_t pieceBytes) {
  return contentBytes == 0 ? 1 : (contentBytes - 1) / pieceBytes + 1;
}

std::uint32_t bytesOfPiece(const Piece& piece) {
  return std::min(piece.pieceBytes, piece.contentBytes - piece.index * piece.pieceBytes);
}

}  // namespace

Rank treeParent(Rank root, Rank rank, int size) {
  const std::uint32_t position = positionFrom(root, rank, size);
  THESEUS_CHECK(position != 0, "the root has no parent");
  return static_cast<Rank>((static_cast<std::uint32_t>(root) + position - std::bit_floor(position)) %
                           static_cast<std::uint32_t>(size));
}

std::vector<Rank> treeChildren(Rank root, Rank rank, int size) {
  const std::uint32_t position = positionFrom(root, rank, size);
  const std::uint32_t ranks = static_cast<std::uint32_t>(size);
  std::vector<Rank> children;
  // A child adds one bit above the highest of `position`; the lower that bit, the more of them its own
  // subtree can still add.
  for (int bit = std::bit_width(position); bit < 31 && position + (1u << bit) < ranks; ++bit) {
    children.push_back(
        static_cast<Rank>((static_cast<std::uint32_t>(root) + position + (1u << bit)) % ranks));
  }
  return children;
}

std::string encodePiece(const Piece& piece, int size) {
  ByteWriter writer;
  writer.reserve(kPieceHeaderBytes + piece.bytes.size());
  writePrefix(writer, MessageKind::kPiece, size);
  writeEntryId(writer, piece.id);
  writer.u32(static_cast<std::uint32_t>(piece.kind));
  writer.u32(piece.contentBytes);
  writer.u32(piece.pieceBytes);
  writer.u32(piece.index);
  writer.bytes(piece.bytes);
  return writer.take();
}

Result<Piece> decodePiece(std::string_view bytes, int size) {
  ByteReader reader(bytes);
  auto messageKind = readPrefix(reader, size);
  if (!messageKind) return fail(std::move(messageKind.error()));
  if (*messageKind != MessageKind::kPiece) return fail(ErrorCode::kInvalidArgument, "not a content message");
  Piece piece;
  piece.id = readEntryId(reader);
  const std::uint32_t kind = reader.u32();
  piece.contentBytes = reader.u32();
  piece.pieceBytes = reader.u32();
  piece.index = reader.u32();
  piece.bytes = reader.rest();
  if (!reader.ok()) return fail(ErrorCode::kInvalidArgument, "content message is cut short");
  if (!isEntryIdOf(piece.id, size) || kind > 255 || !isEntryKind(static_cast<std::uint8_t>(kind))) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("content message of rank {}, kind {}", piece.id.origin, kind));
  }
  piece.kind = static_cast<EntryKind>(kind);
  const bool sane = piece.pieceBytes != 0 && pieceCount(piece.contentBytes, piece.pieceBytes) <= kMaxPieces &&
                    piece.index < pieceCount(piece.contentBytes, piece.pieceBytes) &&
                    piece.bytes.size() == bytesOfPiece(piece);
  if (!sane) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("content message with piece {} of {} bytes, of {} in pieces of {}", piece.index,
                            piece.bytes.size(), piece.contentBytes, piece.pieceBytes));
  }
  return piece;
}

Replication::Replication(Rank rank, int size, const ControlLimits& limits, Log& log)
    : rank_(rank), size_(size), limits_(limits), log_(log) {}

void Replication::spread(const Entry& entry, const Send& send) const {
  const std::vector<Rank> children = treeChildren(entry.id.origin, rank_, size_);
  Piece piece{entry.id,
              entry.kind,
              static_cast<std::uint32_t>(entry.content.size()),
              static_cast<std::uint32_t>(limits_.pieceBytes),
              0,
              {}};
  const std::uint32_t count = pieceCount(piece.contentBytes, piece.pieceBytes);
  for (; piece.index < count; ++piece.index) {
    piece.bytes = std::string_view(entry.content)
                      .substr(std::size_t{piece.index} * piece.pieceBytes, bytesOfPiece(piece));
    const std::string message = encodePiece(piece, size_);
    for (const Rank child : children) send(child, message);
  }
}

Status Replication::checkPossible(Rank from, const Piece& piece) const {
  if (piece.id.origin == rank_ || treeParent(piece.id.origin, rank_, size_) != from) {
    return fail(ErrorCode::kMismatch,
                fmt::format("content of an entry of rank {}, which rank {} does not send to rank {}",
                            piece.id.origin, from, rank_));
  }
  if (piece.contentBytes > limits_.contentBytes) {
    return fail(ErrorCode::kMismatch, fmt::format("content of {} bytes of rank {}; the limit is {}",
                                                  piece.contentBytes, piece.id.origin, limits_.contentBytes));
  }
  if (log_.contentOf(piece.id) == Log::Content::kDifferent) {
    return fail(ErrorCode::kMismatch, fmt::format("rank {} made two different entries with its number {}",
                                                  piece.id.origin, piece.id.number));
  }
  return {};
}

/// An origin has a bounded number of entries, and of bytes, that not every rank holds. This rank can be one
/// round behind in what it knows of that, hence twice the bound.
Status Replication::checkWindow(const Piece& piece) const {
  const std::uint64_t agreed = log_.agreedOf(piece.id.origin, piece.id.incarnation);
  std::uint64_t entries = 1;
  std::uint64_t bytes = log_.bytesBeyondAgreed(piece.id.origin) + piece.contentBytes;
  for (auto it = assemblies_.lower_bound({piece.id.origin, 0, 0});
       it != assemblies_.end() && it->first.origin == piece.id.origin; ++it) {
    bytes += it->second.contentBytes;
    ++entries;
  }
  if (piece.id.number - agreed < 2 * limits_.outstandingEntries &&
      entries <= 2 * limits_.outstandingEntries && bytes <= 2 * limits_.outstandingBytes) {
    return {};
  }
  return fail(
      ErrorCode::kMismatch,
      fmt::format("rank {} exceeds its bound of outstanding entries ({}, {} bytes): entry {}, {} agreed, "
                  "{} bytes",
                  piece.id.origin, limits_.outstandingEntries, limits_.outstandingBytes, piece.id.number,
                  agreed, bytes));
}

Status Replication::checkSameContent(const Assembly& assembly, const Piece& piece) const {
  const bool same = assembly.id == piece.id && assembly.kind == piece.kind &&
                    assembly.contentBytes == piece.contentBytes && assembly.pieceBytes == piece.pieceBytes &&
                    (!assembly.arrived[piece.index] || assembly.pieces[piece.index] == piece.bytes);
  if (same) return {};
  return fail(ErrorCode::kMismatch, fmt::format("pieces of different contents for entry {} of rank {}",
                                                piece.id.number, piece.id.origin));
}

Status Replication::accept(Rank from, const Piece& piece, std::string_view message, const Send& send) {
  THESEUS_TRY(checkPossible(from, piece));
  if (log_.contentOf(piece.id) == Log::Content::kHeld) return {};
  const Key key{piece.id.origin, piece.id.incarnation, piece.id.number};
  const auto found = assemblies_.find(key);
  if (found == assemblies_.end()) {
    THESEUS_TRY(checkWindow(piece));
  } else {
    THESEUS_TRY(checkSameContent(found->second, piece));
    if (found->second.arrived[piece.index]) return {};
  }
  const std::uint32_t count = pieceCount(piece.contentBytes, piece.pieceBytes);
  if ((found == assemblies_.end() ? count : found->second.missing) == 1) {
    THESEUS_TRY(complete(found == assemblies_.end() ? nullptr : &found->second, piece));
    if (found != assemblies_.end()) assemblies_.erase(found);
  } else {
    Assembly fresh{piece.id, piece.kind, piece.contentBytes, piece.pieceBytes, count, {}, {}};
    Assembly& assembly =
        found == assemblies_.end() ? assemblies_.emplace(key, std::move(fresh)).first->second : found->second;
    assembly.keep(piece);
  }
  for (const Rank child : treeChildren(piece.id.origin, rank_, size_)) send(child, std::string(message));
  return {};
}

void Replication::Assembly::keep(const Piece& piece) {
  pieces.resize(pieceCount(contentBytes, pieceBytes));
  arrived.resize(pieces.size());
  pieces[piece.index] = std::string(piece.bytes);
  arrived[piece.index] = true;
  --missing;
}

/// `rest`: the other pieces, null when `last` is the only one.
Status Replication::complete(const Assembly* rest, const Piece& last) {
  std::string content;
  content.reserve(last.contentBytes);
  const std::uint32_t count = pieceCount(last.contentBytes, last.pieceBytes);
  for (std::uint32_t i = 0; i < count; ++i) content.append(i == last.index ? last.bytes : rest->pieces[i]);
  if (entryHash(last.kind, content) != last.id.hash) {
    return fail(
        ErrorCode::kMismatch,
        fmt::format("the content of entry {} of rank {} does not have the hash in its id: damaged on its way",
                    last.id.number, last.id.origin));
  }
  log_.hold(Entry{last.id, last.kind, std::move(content)});
  return {};
}

}  // namespace theseus::control
