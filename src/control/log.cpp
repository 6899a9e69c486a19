#include "control/log.h"

#include <fmt/format.h>

#include "base/check.h"

namespace theseus::control {

const Log::Origin* Log::find(Rank origin, std::uint32_t incarnation) const {
  const auto found = origins_.find({origin, incarnation});
  return found == origins_.end() ? nullptr : &found->second;
}

const Entry* Log::heldEntry(const EntryId& id) const {
  const Origin* origin = find(id.origin, id.incarnation);
  if (origin == nullptr) return nullptr;
  const auto found = origin->held.find(id.number);
  return found == origin->held.end() ? nullptr : &found->second;
}

Log::Content Log::contentOf(const EntryId& id) const {
  const Origin* origin = find(id.origin, id.incarnation);
  if (origin == nullptr) return Content::kMissing;
  if (id.number < origin->orderedHashes.size() && origin->orderedHashes[id.number] != id.hash)
    return Content::kDifferent;
  if (id.number < origin->agreed) return Content::kHeld;
  const auto found = origin->held.find(id.number);
  if (found == origin->held.end()) return Content::kMissing;
  return found->second.id.hash == id.hash ? Content::kHeld : Content::kDifferent;
}

void Log::hold(Entry entry) {
  THESEUS_CHECK(contentOf(entry.id) == Content::kMissing, "an entry is held once");
  const EntryId id = entry.id;
  origins_[{id.origin, id.incarnation}].held.emplace(id.number, std::move(entry));
  extendHeldPrefix();
}

bool Log::isOrdered(const EntryId& id) const {
  const Origin* origin = find(id.origin, id.incarnation);
  return origin != nullptr && id.number < origin->orderedHashes.size();
}

Status Log::checkOrderable(const EntryId& id) const {
  const Origin* origin = find(id.origin, id.incarnation);
  const std::uint64_t next = origin == nullptr ? 0 : origin->orderedHashes.size();
  if (contentOf(id) == Content::kDifferent) {
    return fail(ErrorCode::kMismatch, fmt::format("rank {} made two different entries with its number {}; it "
                                                  "must not reuse an incarnation ({}) after a restart",
                                                  id.origin, id.number, id.incarnation));
  }
  if (id.number > next) {
    return fail(ErrorCode::kMismatch,
                fmt::format("a round orders entry {} of rank {}, whose next entry is {}", id.number,
                            id.origin, next));
  }
  return {};
}

void Log::order(const EntryId& id) {
  if (isOrdered(id)) return;
  Origin& origin = origins_[{id.origin, id.incarnation}];
  THESEUS_CHECK(id.number == origin.orderedHashes.size(), "an origin's entries are ordered without gaps");
  origin.orderedHashes.push_back(id.hash);
  notAgreed_.push_back(id);
  extendHeldPrefix();
}

void Log::extendHeldPrefix() {
  while (heldAhead_ < notAgreed_.size() && heldEntry(notAgreed_[heldAhead_]) != nullptr) ++heldAhead_;
}

void Log::agree(std::uint64_t version) {
  THESEUS_CHECK(version >= agreed_.size() && version <= heldPrefix(),
                "the agreed prefix grows within what is held");
  while (agreed_.size() < version) {
    const EntryId id = notAgreed_.front();
    notAgreed_.pop_front();
    --heldAhead_;
    Origin& origin = origins_[{id.origin, id.incarnation}];
    THESEUS_CHECK(origin.agreed == id.number, "an origin's entries are agreed in their order");
    const auto found = origin.held.find(id.number);
    agreed_.push_back(std::move(found->second));
    origin.held.erase(found);
    ++origin.agreed;
  }
}

const Entry* Log::entry(std::uint64_t position) const {
  if (position < agreed_.size()) return &agreed_[position];
  if (position >= ordered()) return nullptr;
  return heldEntry(notAgreed_[position - agreed_.size()]);
}

std::uint64_t Log::agreedOf(Rank origin, std::uint32_t incarnation) const {
  const Origin* found = find(origin, incarnation);
  return found == nullptr ? 0 : found->agreed;
}

std::uint64_t Log::bytesBeyondAgreed(Rank origin) const {
  std::uint64_t bytes = 0;
  for (auto it = origins_.lower_bound({origin, 0}); it != origins_.end() && it->first.first == origin; ++it) {
    for (const auto& [number, entry] : it->second.held) bytes += entry.content.size();
  }
  return bytes;
}

}  // namespace theseus::control
