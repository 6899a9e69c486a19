// What people and tools ask of a running communicator: entries for all ranks, and its state as JSON and as
// Prometheus text.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "policy/force.h"
#include "runtime/communicator_impl.h"
#include "runtime/materialize.h"

namespace theseus {
namespace {

using nlohmann::json;

std::string candidateName(const policy::PolicyEngine& engine, control::ScheduleSlot slot) {
  const auto& candidates = engine.candidates();
  if (slot < 0 || static_cast<std::size_t>(slot) >= candidates.size()) return "none";
  return candidates[static_cast<std::size_t>(slot)].name;
}

/// The table as ranges of equal choice: [{"collective","from_bytes","to_bytes","schedule"}].
json dispatchJson(const control::DispatchTable& table, const policy::PolicyEngine& engine) {
  json rows = json::array();
  for (int collective = 0; collective < control::kCollectives; ++collective) {
    const auto& slots = table.slots[static_cast<std::size_t>(collective)];
    for (std::size_t bucket = 1; bucket < slots.size();) {
      std::size_t end = bucket;
      while (end < slots.size() && slots[end] == slots[bucket]) ++end;
      if (slots[bucket] >= 0) {
        rows.push_back({{"collective", name(static_cast<Collective>(collective))},
                        {"from_bytes", 1ull << (bucket - 1)},
                        {"to_bytes", (1ull << (end - 1)) - 1},
                        {"schedule", candidateName(engine, slots[bucket])}});
      }
      bucket = end;
    }
  }
  return rows;
}

json attributesJson(const control::Context& context) {
  json attributes = json::object();
  for (const auto& [name, values] : context.attributes) {
    json row = json::array();
    for (double value : values) row.push_back(std::isnan(value) ? json(nullptr) : json(value));
    attributes[name] = std::move(row);
  }
  return attributes;
}

json candidatesJson(const policy::PolicyEngine& engine, const control::Context& context,
                    const runtime::DataPlane& data) {
  json rows = json::array();
  const auto& candidates = engine.candidates();
  for (std::size_t slot = 0; slot < candidates.size(); ++slot) {
    const policy::Candidate& candidate = candidates[slot];
    rows.push_back({{"slot", slot},
                    {"name", candidate.name},
                    {"hash", base::toHex(candidate.hash)},
                    {"collective", name(candidate.collective)},
                    {"materialized_here", data.installed(static_cast<control::ScheduleSlot>(slot))},
                    {"ready_everywhere", context.round == 0 || context.ready[slot]},
                    {"dropped", candidate.dropped}});
  }
  return rows;
}

json swapsJson(const policy::PolicyEngine& engine) {
  json rows = json::array();
  for (const policy::SwapRecord& swap : engine.swaps()) {
    rows.push_back({{"round", swap.round},
                    {"switch_at", swap.switchAt},
                    {"collective", name(swap.collective)},
                    {"from_bytes", swap.firstBucket == 0 ? 0 : 1ull << (swap.firstBucket - 1)},
                    {"to_bytes", (1ull << swap.lastBucket) - 1},
                    {"from", swap.from},
                    {"to", swap.to},
                    {"reason", swap.reason}});
  }
  return rows;
}

constexpr const char* kNoControl =
    "the control plane of this communicator is off (CommunicatorOptions::control)";

}  // namespace

Status Communicator::Impl::requireControl() const {
  if (control_) return {};
  return fail(ErrorCode::kUnsupported, kNoControl);
}

std::string Communicator::Impl::statusJson() const {
  if (!control_) return json{{"rank", options_.rank}, {"size", options_.size}, {"control", false}}.dump();
  auto text = control_->ask([this] {
    const control::Context& context = control_->plane().context();
    const control::Epoch epoch = board_->newest();
    json status{{"rank", options_.rank},
                {"size", options_.size},
                {"transport", transportName_},
                {"round", epoch.round},
                {"switch_at", epoch.switchAt},
                {"sequence", gate_.issued()},
                {"log_entries", control_->plane().log().size()},
                {"pending_entries", control_->plane().pendingProposals()},
                {"limit_wait_seconds",
                 // Relaxed: a figure for reports, which orders nothing.
                 static_cast<double>(limitWaitNanoseconds_.load(std::memory_order_relaxed)) * 1e-9},
                {"memory_bytes", data_->memoryBytes()},
                {"attributes", attributesJson(context)},
                {"dispatch", dispatchJson(*epoch.table, *engine_)},
                {"candidates", candidatesJson(*engine_, context, *data_)},
                {"swaps", swapsJson(*engine_)}};
    return status.dump();
  });
  return text ? *text : json{{"rank", options_.rank}, {"error", text.error().message}}.dump();
}

std::string Communicator::Impl::explainJson(Collective collective, std::uint64_t bytes) const {
  if (!control_) return json{{"error", kNoControl}}.dump();
  auto text = control_->ask([this, collective, bytes] {
    json rows = json::array();
    for (const policy::Explanation& row : engine_->explain(collective, bytes)) {
      rows.push_back({{"schedule", row.schedule},
                      {"slot", row.slot},
                      {"ready", row.ready},
                      {"usable", row.usable},
                      {"in_force", row.inForce},
                      {"predicted_us", row.predictedSeconds * 1e6},
                      {"why", row.why}});
    }
    return json{{"collective", name(collective)}, {"bytes", bytes}, {"schedules", rows}}.dump();
  });
  return text ? *text : json{{"error", text.error().message}}.dump();
}

Result<std::string> Communicator::Impl::newSched(const std::string& text) {
  THESEUS_TRY(requireControl());
  // Everything that can be wrong with it is found here, before any rank hears of it.
  auto candidate = runtime::readCandidate(text, options_.size);
  if (!candidate) return fail(candidate.error());
  THESEUS_TRY(control_->propose(control::EntryKind::kNewSchedule, text));
  return base::toHex(candidate->hash);
}

Result<std::string> Communicator::Impl::findSchedule(const std::string& schedule,
                                                     std::optional<Collective> collective) {
  THESEUS_TRY(requireControl());
  auto found = control_->ask([this, schedule, collective]() -> std::string {
    for (const policy::Candidate& candidate : engine_->candidates()) {
      const bool fits = !collective || candidate.collective == *collective;
      if (fits && !candidate.dropped &&
          (candidate.name == schedule || base::toHex(candidate.hash) == schedule)) {
        return base::toHex(candidate.hash);
      }
    }
    return "";
  });
  if (!found) return found;
  if (found->empty()) {
    return fail(ErrorCode::kNotFound,
                fmt::format("no schedule '{}'{}; `theseus ctl status` lists them", schedule,
                            collective ? fmt::format(" for {}", name(*collective)) : std::string()));
  }
  return found;
}

Status Communicator::Impl::dropSched(const std::string& schedule) {
  auto hash = findSchedule(schedule, std::nullopt);
  if (!hash) return fail(hash.error());
  return control_->propose(control::EntryKind::kDropSchedule, *hash);
}

Status Communicator::Impl::swap(Collective collective, const std::string& schedule) {
  THESEUS_TRY(requireControl());
  policy::Force force;
  force.collective = collective;
  force.schedule = schedule;
  if (schedule != "auto") {
    auto hash = findSchedule(schedule, collective);
    if (!hash) return fail(hash.error());
    force.schedule = *hash;
  }
  return control_->propose(control::EntryKind::kForce, policy::encodeForce(force));
}

Status Communicator::Impl::setExo(const std::string& name, const std::string& value) {
  THESEUS_TRY(requireControl());
  if (name.empty() || name.find_first_of("= \n") != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("attribute name '{}': must not be empty or hold '=', space or newline", name));
  }
  return control_->propose(control::EntryKind::kSetExo, name + "=" + value);
}

Status Communicator::Impl::newAttr(const std::string& name, AttributeJoin join,
                                   std::function<double()> sampler) {
  THESEUS_TRY(requireControl());
  control::AttributeDeclaration declaration;
  declaration.name = name;
  declaration.op =
      join == AttributeJoin::kMin ? control::AttributeOperator::kMin : control::AttributeOperator::kMax;
  const std::string content = control::attributeContent(declaration);
  if (auto parsed = control::parseAttributeContent(content, options_.size); !parsed)
    return fail(parsed.error());
  return control_->addSampler(content, {name, std::move(sampler)});
}

std::string Communicator::Impl::metricsText() const {
  const auto line = [this](const char* metric, const char* type, const char* help, double value) {
    return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0}{{rank=\"{3}\"}} {4}\n", metric, help, type,
                       options_.rank, value);
  };
  const control::Epoch epoch = board_->newest();
  std::string text;
  text += line("theseus_collectives_total", "counter", "collectives completed",
               // Relaxed: a figure for reports, which orders nothing.
               static_cast<double>(callsDone_.load(std::memory_order_relaxed)));
  text += line("theseus_bytes_total", "counter", "message bytes of completed collectives",
               // Relaxed: a figure for reports, which orders nothing.
               static_cast<double>(bytesDone_.load(std::memory_order_relaxed)));
  text += line("theseus_limit_wait_seconds_total", "counter", "time spent at the limit of a round",
               // Relaxed: a figure for reports, which orders nothing.
               static_cast<double>(limitWaitNanoseconds_.load(std::memory_order_relaxed)) * 1e-9);
  text += line("theseus_round", "gauge", "round of the newest epoch", static_cast<double>(epoch.round));
  text += line("theseus_memory_bytes", "gauge", "scratch and staging memory",
               static_cast<double>(data_->memoryBytes()));
  return text;
}

}  // namespace theseus
