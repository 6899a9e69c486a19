// The log of one rank: ids in the order that rounds gave them, the contents that this rank holds, and the
// agreed prefix. Entries are never removed, so every version of the log stays readable. Owned by the control
// plane; one thread. In memory: durable storage replaces the insides, with heldPrefix() counting an entry
// once it is stored.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "control/entry.h"
#include "theseus/result.h"

namespace theseus::control {

class Log {
 public:
  enum class Content {
    kMissing,
    kHeld,
    kDifferent
  };  // kDifferent: the same origin and number with another hash

  /// What this rank has of the entry that `id` names.
  Content contentOf(const EntryId& id) const;
  /// Keeps an entry whose content has arrived (or is this rank's own). contentOf must be kMissing and
  /// checkOrderable must hold.
  void hold(Entry entry);
  /// Whether a round may order `id`: kMismatch when its origin's numbers would skip, or when the content held
  /// has another hash.
  Status checkOrderable(const EntryId& id) const;
  /// Appends `id`; checkOrderable must hold. An id that is ordered already does nothing.
  void order(const EntryId& id);
  /// A round has ordered this number of this origin.
  bool isOrdered(const EntryId& id) const;

  std::uint64_t ordered() const { return agreed_.size() + notAgreed_.size(); }
  /// The longest prefix of the ordered entries whose contents are all held.
  std::uint64_t heldPrefix() const { return agreed_.size() + heldAhead_; }
  /// Makes the prefix [0, version) the agreed one; agreed().size() <= version <= heldPrefix().
  void agree(std::uint64_t version);
  const std::vector<Entry>& agreed() const { return agreed_; }
  /// Entry at `position` of the order, or null when its content is not held. Valid until the next non-const
  /// call.
  const Entry* entry(std::uint64_t position) const;

  /// Of one origin's process: entries in the agreed prefix, and bytes held beyond it.
  std::uint64_t agreedOf(Rank origin, std::uint32_t incarnation) const;
  std::uint64_t bytesBeyondAgreed(Rank origin) const;

 private:
  using Source = std::pair<Rank, std::uint32_t>;  // origin, incarnation
  struct Origin {
    std::vector<base::Hash128> orderedHashes;  // by number
    std::uint64_t agreed = 0;
    std::map<std::uint64_t, Entry> held;  // by number; not in the agreed prefix yet
  };
  const Origin* find(Rank origin, std::uint32_t incarnation) const;
  const Entry* heldEntry(const EntryId& id) const;
  void extendHeldPrefix();

  std::vector<Entry> agreed_;
  std::deque<EntryId> notAgreed_;  // ordered, beyond the agreed prefix
  std::uint64_t heldAhead_ = 0;    // leading entries of notAgreed_ whose contents are held
  std::map<Source, Origin> origins_;
};

}  // namespace theseus::control
