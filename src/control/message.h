// What every control message starts with. Internal to control; pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "control/bytes.h"
#include "control/entry.h"
#include "theseus/result.h"

namespace theseus::control {

enum class MessageKind : std::uint8_t { kRound = 1, kPiece = 2 };

constexpr std::uint8_t kMessageMagic = 0x54;
constexpr std::uint8_t kMessageVersion = 1;
/// magic, version, kind, zero, rank count (32 bit)
constexpr std::size_t kMessagePrefixBytes = 8;

void writePrefix(ByteWriter& writer, MessageKind kind, int size);
/// Checks magic, version and rank count. A different rank count is kMismatch, everything else
/// kInvalidArgument.
Result<MessageKind> readPrefix(ByteReader& reader, int size);

void writeEntryId(ByteWriter& writer, const EntryId& id);
/// The caller checks reader.ok() and isEntryIdOf.
EntryId readEntryId(ByteReader& reader);
bool isEntryIdOf(const EntryId& id, int size);

}  // namespace theseus::control
