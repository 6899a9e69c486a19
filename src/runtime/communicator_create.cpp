// How a Communicator comes to be: rendezvous, transport, initial schedules, control thread; and how it goes
// away.
#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "discovery/discovery.h"
#include "runtime/communicator_impl.h"
#include "runtime/local_job.h"
#include "runtime/materialize.h"
#include "topology/topology.h"

namespace theseus {
namespace {

using namespace runtime;

Status checkOptions(const CommunicatorOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("rank {} of {} ranks: need size >= 1 and 0 <= rank < size", options.rank, options.size));
  }
  for (const char* known : {"auto", "loopback", "shm", "tcp"}) {
    if (options.transport == known) return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("transport '{}' is unknown; use auto, loopback, shm or tcp", options.transport));
}

/// All ranks must want the same transport; "auto" is shared memory where all can reach it.
Result<std::string> chooseTransport(const CommunicatorOptions& options, Rendezvous& rendezvous) {
  auto wishes = rendezvous.exchange("transport", options.transport);
  if (!wishes) return fail(wishes.error());
  for (std::size_t rank = 0; rank < wishes->size(); ++rank) {
    if ((*wishes)[rank] == options.transport) continue;
    return fail(ErrorCode::kMismatch, fmt::format("rank {} wants transport {}, rank {} wants {}",
                                                  options.rank, options.transport, rank, (*wishes)[rank]));
  }
  if (options.transport != "auto") return options.transport;
  if (options.local) return std::string("loopback");
  auto texts = rendezvous.exchange("place", topology::toText(discovery::discoverPlace()));
  if (!texts) return fail(texts.error());
  std::vector<topology::RankPlace> places;
  for (const std::string& text : *texts) {
    auto place = topology::parseRankPlace(text);
    if (!place) return fail(place.error());
    places.push_back(std::move(*place));
  }
  return std::string(topology::Topology(std::move(places)).allShareMemory() ? "shm" : "tcp");
}

Result<std::unique_ptr<transport::Endpoint>> makeEndpoint(const std::string& name,
                                                          const CommunicatorOptions& options,
                                                          const std::string& job) {
  const transport::EndpointOptions endpoint{options.rank, options.size, options.secret, job};
  if (name == "loopback") {
    if (!options.local) {
      return fail(ErrorCode::kInvalidArgument,
                  "transport loopback needs ranks that are threads of one process (options.local)");
    }
    return transport::makeLoopbackEndpoint(options.local->hub(), endpoint);
  }
  if (name == "shm") return transport::makeShmEndpoint(endpoint);
  return transport::makeTcpEndpoint(endpoint, {options.bindAddress, options.bindAddress});
}

}  // namespace

Result<std::unique_ptr<Communicator::Impl>> Communicator::Impl::create(const CommunicatorOptions& options) {
  THESEUS_TRY(checkOptions(options));
  std::unique_ptr<Impl> impl(new Impl(options));
  THESEUS_TRY(impl->assemble());
  return impl;
}

Status Communicator::Impl::assemble() {
  std::unique_ptr<Rendezvous> rendezvous;
  if (options_.local) {
    rendezvous = makeLocalRendezvous(options_.local, options_.rank);
    mesh_ = makeLocalMesh(options_.local, options_.rank);
  } else {
    auto joined = makeTcpRendezvous(options_);
    if (!joined) return fail(joined.error());
    rendezvous = std::move(*joined);
    auto mesh = makeTcpMesh(options_);
    if (!mesh) return fail(mesh.error());
    mesh_ = std::move(*mesh);
  }
  auto addresses = rendezvous->exchange("mesh", mesh_->address());
  if (!addresses) return fail(addresses.error());
  THESEUS_TRY(mesh_->setPeers(std::move(*addresses)));
  THESEUS_TRY(openTransport(*rendezvous));
  THESEUS_TRY(installSchedules());
  if (options_.control) {
    control_ = std::make_unique<ControlThread>(options_.rank, options_.size,
                                               ControlParts{*mesh_, *data_, gate_, *board_, *engine_});
    control_->start();
  }
  // Nobody returns before everybody can be reached.
  auto ready = rendezvous->exchange("ready", "");
  if (!ready) return fail(ready.error());
  if (options_.ctl && options_.control) {
    if (auto start = controlServerFactory()) server_ = start(*this, options_);
  }
  return {};
}

Status Communicator::Impl::openTransport(Rendezvous& rendezvous) {
  auto name = chooseTransport(options_, rendezvous);
  if (!name) return fail(name.error());
  transportName_ = *name;
  // Distinguishes jobs, and several communicators of one job, on one host: rank 0 names it.
  static std::atomic<std::uint64_t> communicators{0};
  auto jobs = rendezvous.exchange(
      "job", fmt::format("{}-{}-{}", getpid(), communicators.fetch_add(1), options_.masterPort));
  if (!jobs) return fail(jobs.error());
  auto endpoint = makeEndpoint(transportName_, options_, jobs->front());
  if (!endpoint) return fail(endpoint.error());
  auto addresses = rendezvous.exchange("endpoint", (*endpoint)->address());
  if (!addresses) return fail(addresses.error());
  THESEUS_TRY((*endpoint)->setPeers(std::move(*addresses)));
  if (options_.emulatedLinkBytesPerSecond > 0) {
    THESEUS_TRY((*endpoint)->emulateLinkRate(options_.emulatedLinkBytesPerSecond));
  }
  data_ = std::make_unique<DataPlane>(DataPlaneOptions{options_.rank, options_.size, options_.timeout},
                                      std::move(*endpoint));
  return {};
}

Status Communicator::Impl::installSchedules() {
  const transport::Capabilities& capabilities = data_->endpoint().capabilities();
  policy::PolicyOptions policy;
  policy.ranks = options_.size;
  policy.link = {capabilities.latencySeconds, capabilities.bytesPerSecond};
  if (options_.emulatedLinkBytesPerSecond > 0)
    policy.link.bytesPerSecond = options_.emulatedLinkBytesPerSecond;
  engine_ = std::make_unique<policy::PolicyEngine>(policy);
  board_ = std::make_unique<EpochBoard>(control::Epoch{0, 0, engine_->initialTable()});
  const auto& candidates = engine_->candidates();
  for (std::size_t slot = 0; slot < candidates.size(); ++slot) {
    // Generators hand out only what the verifier passed, tail synchronization included.
    data_->install(static_cast<control::ScheduleSlot>(slot),
                   std::make_unique<resource::ScheduleNode>(candidates[slot].name, candidates[slot].schedule,
                                                            options_.rank, true));
  }
  return installFixed();
}

Status Communicator::Impl::installFixed() {
  fixed_.fill(-1);
  if (options_.schedule.empty()) return {};
  auto fixed = fixedSchedules(options_.schedule, options_.size);
  if (!fixed) return fail(fixed.error());
  // Slots from the far end: the engine numbers from zero.
  control::ScheduleSlot slot = control::kScheduleSlots - 1;
  for (const policy::Candidate& candidate : *fixed) {
    auto preparation = policy::prepare(candidate);
    if (!preparation) return fail(preparation.error());
    auto node = materialize(candidate.name, *preparation, options_.rank);
    if (!node) return fail(node.error());
    fixed_[static_cast<std::size_t>(candidate.collective)] = slot;
    data_->install(slot--, std::move(*node));
  }
  return {};
}

Communicator::Impl::~Impl() {
  server_.reset();
  if (control_) control_->finish(options_.timeout);
  control_.reset();
}

}  // namespace theseus
