// Event ids, made from events.def, and one event as a reader gets it. Plain values, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace theseus::telemetry {

enum class EventId : std::uint16_t {
#define THESEUS_EVENT(id, name, kind, a, b) id,
#include "telemetry/events.def"
#undef THESEUS_EVENT
};

enum class EventKind : std::uint8_t { Begin, End, Instant };

struct EventTraits {
  std::string_view name;   // "collective.begin"
  std::string_view track;  // "collective": equal for the Begin and the End of a pair
  EventKind kind = EventKind::Instant;
  std::string_view a;  // what the values are
  std::string_view b;
};

constexpr EventTraits kEventTraits[] = {
#define THESEUS_EVENT(id, name, kind, a, b) \
  {name, std::string_view(name).substr(0, std::string_view(name).rfind('.')), EventKind::kind, a, b},
#include "telemetry/events.def"
#undef THESEUS_EVENT
};
constexpr std::size_t kEventCount = std::size(kEventTraits);

constexpr const EventTraits& traits(EventId id) { return kEventTraits[static_cast<std::size_t>(id)]; }

struct Event {
  std::int64_t nanoseconds = 0;  // of the monotonic clock
  EventId id = EventId::kEpoch;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  friend bool operator==(const Event&, const Event&) = default;
};

}  // namespace theseus::telemetry
