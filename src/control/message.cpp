#include "control/message.h"

#include <fmt/format.h>

namespace theseus::control {

void writePrefix(ByteWriter& writer, MessageKind kind, int size) {
  writer.u8(kMessageMagic);
  writer.u8(kMessageVersion);
  writer.u8(static_cast<std::uint8_t>(kind));
  writer.u8(0);
  writer.u32(static_cast<std::uint32_t>(size));
}

Result<MessageKind> readPrefix(ByteReader& reader, int size) {
  const std::uint8_t magic = reader.u8();
  const std::uint8_t version = reader.u8();
  const std::uint8_t kind = reader.u8();
  const std::uint8_t reserved = reader.u8();
  const std::uint32_t ranks = reader.u32();
  if (!reader.ok() || magic != kMessageMagic || reserved != 0) {
    return fail(ErrorCode::kInvalidArgument, "not a control message");
  }
  if (version != kMessageVersion) {
    return fail(ErrorCode::kMismatch,
                fmt::format("control message of version {}, this rank speaks {}; run one build on all ranks",
                            version, kMessageVersion));
  }
  if (ranks != static_cast<std::uint32_t>(size)) {
    return fail(ErrorCode::kMismatch,
                fmt::format("control message of a communicator of {} ranks, this one has {}", ranks, size));
  }
  if (kind != static_cast<std::uint8_t>(MessageKind::kRound) &&
      kind != static_cast<std::uint8_t>(MessageKind::kPiece)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("control message of unknown kind {}", kind));
  }
  return static_cast<MessageKind>(kind);
}

void writeEntryId(ByteWriter& writer, const EntryId& id) {
  writer.u32(static_cast<std::uint32_t>(id.origin));
  writer.u32(id.incarnation);
  writer.u64(id.number);
  writer.hash(id.hash);
}

EntryId readEntryId(ByteReader& reader) {
  EntryId id;
  id.origin = static_cast<Rank>(reader.u32());
  id.incarnation = reader.u32();
  id.number = reader.u64();
  id.hash = reader.hash();
  return id;
}

bool isEntryIdOf(const EntryId& id, int size) { return id.origin >= 0 && id.origin < size; }

}  // namespace theseus::control
