#include "theseus/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "runtime/communicator_impl.h"
#include "runtime/environment.h"
#include "schedule/resolve.h"

namespace theseus {
namespace {

using runtime::CollectiveRequest;

double secondsSince(base::TimePoint start) {
  return std::chrono::duration<double>(base::SteadyClock::instance().now() - start).count();
}

}  // namespace

Status Communicator::Impl::validate(const CollectiveRequest& request) const {
  const bool reads = request.collective != Collective::kBroadcast || options_.rank == request.root;
  if (request.count > 0 && (request.destination == nullptr || (reads && request.source == nullptr))) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: a buffer is null although count is {}",
                                                         name(request.collective), request.count));
  }
  if (request.root < 0 || request.root >= options_.size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: root {} is not a rank of 0...{}", name(request.collective), request.root,
                            options_.size - 1));
  }
  // Sizes travel as 64-bit byte counts; this keeps count * ranks * element far from wrapping.
  const std::uint64_t countMax = (1ull << 46) / static_cast<std::uint64_t>(options_.size);
  if (request.count > countMax) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: count {} is too large (at most {})",
                                                         name(request.collective), request.count, countMax));
  }
  return {};
}

Status Communicator::Impl::waitAtLimit(SequenceNumber sequence, CallReport& report) {
  if (gate_.mayRun(sequence)) return {};
  const base::TimePoint start = base::SteadyClock::instance().now();
  const bool allowed = gate_.waitUntilAllowed(sequence, options_.timeout);
  report.limitWaitSeconds = secondsSince(start);
  // Relaxed: a figure for reports, which orders nothing.
  limitWaitNanoseconds_.fetch_add(static_cast<std::uint64_t>(report.limitWaitSeconds * 1e9),
                                  std::memory_order_relaxed);
  if (allowed) return {};
  if (control_ && control_->broken()) return fail(control_->reason());
  Error error{ErrorCode::kTimeout, fmt::format("collective {} waited {:.1f} s at the limit of a round of "
                                               "agreement that does not complete; a rank is "
                                               "stopped or cut off",
                                               sequence, report.limitWaitSeconds)};
  if (control_) control_->breakDown(error, true);
  return fail(error);
}

// Hop 1 of the fast path: checks the call, numbers it, and runs the schedule that the epoch in force names.
Status Communicator::Impl::call(const CollectiveRequest& request) {
  if (control_ && control_->broken()) return fail(control_->reason());
  THESEUS_TRY(validate(request));
  const base::TimePoint start = base::SteadyClock::instance().now();
  CallReport report;
  report.sequence = gate_.issue();
  THESEUS_TRY(waitAtLimit(report.sequence, report));
  const control::Epoch& epoch = board_->find(report.sequence);
  report.round = epoch.round;
  const schedule::MessageSize size =
      schedule::messageSize(request.collective, options_.size, request.count,
                            static_cast<std::uint32_t>(dataTypeBytes(request.dataType)));
  const std::uint64_t bytes = std::max(size.inputBytes, size.outputBytes);
  const auto collective = static_cast<std::size_t>(request.collective);
  control::ScheduleSlot slot = fixed_[collective];
  if (slot < 0) slot = epoch.table->slots[collective][static_cast<std::size_t>(control::sizeBucket(bytes))];
  if (bytes > 0 && options_.size > 1) {
    resource::ScheduleNode* node = data_->node(slot);
    if (node == nullptr) {
      return fail(ErrorCode::kUnsupported, fmt::format("{} on {} ranks: no schedule serves it",
                                                       name(request.collective), options_.size));
    }
    if (request.collective == Collective::kBroadcast) node = &node->forRoot(request.root);
    report.schedule = node->name();
    auto done = data_->run(request, report.sequence, *node);
    if (!done) {
      // Invalid arguments stop nobody else; everything else leaves peers waiting, so they are told.
      if (control_) control_->breakDown(done.error(), true);
      return done;
    }
    if (control_ && data_->endpoint().capabilities().measuresLinks) {
      control_->report(slot, data_->endpoint().takeLinkSample(),
                       secondsSince(start) - report.limitWaitSeconds);
    }
  } else if (bytes > 0 && request.source != request.destination) {
    std::memcpy(request.destination, request.source, bytes);
  }
  report.seconds = secondsSince(start);
  // Relaxed, both: figures for reports, which order nothing.
  callsDone_.fetch_add(1, std::memory_order_relaxed);
  bytesDone_.fetch_add(bytes, std::memory_order_relaxed);
  lastCall_ = std::move(report);
  return {};
}

// A barrier is an allReduce of one element: every rank's result depends on every rank's call.
Status Communicator::Impl::barrier() {
  std::int32_t token = 0;
  return call({Collective::kAllReduce, &token, &token, 1, DataType::kInt32, ReduceOp::kMax, 0});
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorOptions& options) {
  auto impl = Impl::create(options);
  if (!impl) return fail(impl.error());
  return std::unique_ptr<Communicator>(new Communicator(std::move(*impl)));
}

Result<std::unique_ptr<Communicator>> Communicator::createFromEnvironment() {
  auto options = runtime::optionsFromEnvironment();
  if (!options) return fail(options.error());
  return create(*options);
}

int Communicator::rank() const { return impl_->options().rank; }
int Communicator::size() const { return impl_->options().size; }

Status Communicator::allReduce(const void* source, void* destination, std::size_t count,
                               const Reduction& reduction) {
  return impl_->call({Collective::kAllReduce, source, destination, count, reduction.type, reduction.op, 0});
}

Status Communicator::allGather(const void* source, void* destination, std::size_t count, DataType type) {
  return impl_->call({Collective::kAllGather, source, destination, count, type, ReduceOp::kSum, 0});
}

Status Communicator::reduceScatter(const void* source, void* destination, std::size_t count,
                                   const Reduction& reduction) {
  return impl_->call(
      {Collective::kReduceScatter, source, destination, count, reduction.type, reduction.op, 0});
}

Status Communicator::broadcast(const void* source, void* destination, std::size_t count,
                               const Rooted& rooted) {
  return impl_->call(
      {Collective::kBroadcast, source, destination, count, rooted.type, ReduceOp::kSum, rooted.root});
}

Status Communicator::allToAll(const void* source, void* destination, std::size_t count, DataType type) {
  return impl_->call({Collective::kAllToAll, source, destination, count, type, ReduceOp::kSum, 0});
}

Status Communicator::barrier() { return impl_->barrier(); }

Result<std::string> Communicator::newSched(const std::string& text) { return impl_->newSched(text); }
Status Communicator::dropSched(const std::string& schedule) { return impl_->dropSched(schedule); }
Status Communicator::swap(Collective collective, const std::string& schedule) {
  return impl_->swap(collective, schedule);
}
Status Communicator::setExo(const std::string& name, const std::string& value) {
  return impl_->setExo(name, value);
}
Status Communicator::newAttr(const std::string& name, AttributeJoin join, std::function<double()> sampler) {
  return impl_->newAttr(name, join, std::move(sampler));
}
Status Communicator::emulateLinkRate(double bytesPerSecond) {
  return impl_->data().endpoint().emulateLinkRate(bytesPerSecond);
}

CallReport Communicator::lastCall() const { return impl_->lastCall(); }
std::string Communicator::statusJson() const { return impl_->statusJson(); }
std::string Communicator::explainJson(Collective collective, std::uint64_t bytes) const {
  return impl_->explainJson(collective, bytes);
}

}  // namespace theseus
