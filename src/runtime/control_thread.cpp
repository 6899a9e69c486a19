#include "runtime/control_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "runtime/materialize.h"

namespace theseus::runtime {
namespace {

using namespace std::chrono_literals;

/// How often an idle control thread looks around by itself: rates for the slack, samplers. Messages and
/// commands wake it at once.
constexpr auto kIdleTick = 200ms;
/// The same while the channels of a new schedule are being opened by the calling thread.
constexpr auto kChannelTick = 2ms;
constexpr auto kAskTimeout = 2s;
/// Slack never below this: the collective after the one that runs may start, so a round that is shorter than
/// a collective meets no limit.
constexpr SequenceNumber kSlackMin = 1;
constexpr SequenceNumber kSlackMax = 1'000'000;
/// A round should be over in half of the calls that the slack allows.
constexpr double kSlackSafety = 2;
/// Weight of a new observation in smoothed times.
constexpr double kSmoothing = 0.3;
/// Samples waiting for the control thread; older ones are dropped, since only the newest tell the present.
constexpr std::size_t kSamplesMax = 64;

base::TimePoint now() { return base::SteadyClock::instance().now(); }
double seconds(base::Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

control::ControlOptions controlOptions(Rank rank, int size, const EpochBoard& board) {
  control::ControlOptions options;
  options.rank = rank;
  options.size = size;
  options.attributes.push_back(
      {policy::kLinkRateAttribute, control::AttributeOperator::kMax, static_cast<std::uint32_t>(size)});
  options.initialTable = board.newest().table->hash();
  return options;
}

}  // namespace

ControlThread::ControlThread(Rank rank, int size, ControlParts parts)
    : rank_(rank),
      size_(size),
      parts_(parts),
      monitor_(rank, size),
      goodbyes_(static_cast<std::size_t>(size), false) {
  // Not make_unique: only this class may see itself as the Host.
  plane_.reset(new control::ControlPlane(controlOptions(rank, size, parts_.board), *this, parts_.engine));
  tableHash_ = parts_.board.newest().table->hash();
  // What the engine starts with is known, verified and installed on every rank before the first call.
  offered_ = parts_.engine.candidates().size();
  for (std::size_t slot = 0; slot < offered_; ++slot)
    plane_->setReady(static_cast<control::ScheduleSlot>(slot), true);
  parts_.mesh.onBroken = [this](Rank peer, const std::string& why) {
    if (goodbyes_[static_cast<std::size_t>(peer)]) return;
    breakDown({ErrorCode::kAborted, fmt::format("rank {} is gone: {}", peer, why)}, false);
  };
  // A rank that leaves in good order has heard everybody's goodbye, even if its own to this rank was still on
  // its way.
  parts_.mesh.onLeft = [this](Rank peer) { countGoodbye(peer); };
}

ControlThread::~ControlThread() {
  // Release/acquire are implied by the joins; seq_cst is used as this is no hot path.
  stopping_.store(true);
  parts_.mesh.wake();
  materializeChanged_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (materializer_.joinable()) materializer_.join();
}

void ControlThread::start() {
  thread_ = std::thread([this] { loop(); });
  materializer_ = std::thread([this] { materializeLoop(); });
}

void ControlThread::post(std::function<void()> command) {
  {
    std::scoped_lock lock(mutex_);
    commands_.push_back(std::move(command));
  }
  parts_.mesh.wake();
}

Result<std::string> ControlThread::ask(std::function<std::string()> question) {
  auto answer = std::make_shared<std::promise<std::string>>();
  auto future = answer->get_future();
  post([answer, question = std::move(question)] { answer->set_value(question()); });
  if (future.wait_for(kAskTimeout) != std::future_status::ready) {
    return theseus::fail(
        ErrorCode::kTimeout,
        "the control thread did not answer within 2 s; is the communicator being destroyed?");
  }
  return future.get();
}

Status ControlThread::propose(control::EntryKind kind, std::string content) {
  if (broken()) return theseus::fail(reason());
  auto error = std::make_shared<Error>();
  auto done = ask([this, kind, content = std::move(content), error]() mutable {
    auto proposed = plane_->propose(kind, std::move(content));
    if (!proposed) *error = proposed.error();
    return std::string(proposed ? "" : "error");
  });
  if (!done) return theseus::fail(done.error());
  if (!done->empty()) return theseus::fail(*error);
  return {};
}

Status ControlThread::addSampler(const std::string& declaration, Sampler sampler) {
  THESEUS_TRY(propose(control::EntryKind::kNewAttribute, declaration));
  post([this, sampler = std::move(sampler)]() mutable { samplers_.push_back(std::move(sampler)); });
  return {};
}

void ControlThread::report(control::ScheduleSlot slot, const transport::LinkSample& sample,
                           double callSeconds) {
  if (sample.egress.bytes == 0) return;
  {
    std::scoped_lock lock(mutex_);
    if (samples_.size() == kSamplesMax) samples_.pop_front();
    samples_.push_back({slot, sample, callSeconds});
  }
  parts_.mesh.wake();
}

void ControlThread::breakDown(Error error, bool tellOthers) {
  {
    std::scoped_lock lock(mutex_);
    if (reason_) return;
    reason_ = error;
  }
  // Release: reason_ is there before anyone sees the flag.
  broken_.store(true, std::memory_order_release);
  parts_.data.interrupt(error);
  parts_.gate.stop();
  if (!tellOthers) return;
  post([this, text = fmt::format("rank {}: {}", rank_, error.message)] {
    for (Rank peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      // A peer that cannot be told is gone itself; its own mesh reports that.
      [[maybe_unused]] auto sent = parts_.mesh.send(peer, static_cast<char>(MessageTag::kAbort) + text);
    }
  });
}

Error ControlThread::reason() const {
  std::scoped_lock lock(mutex_);
  return reason_.value_or(Error{ErrorCode::kAborted, "the communicator is broken"});
}

// ---- control::Host ----

void ControlThread::send(Rank to, std::string bytes) {
  auto sent = parts_.mesh.send(to, static_cast<char>(MessageTag::kControl) + std::move(bytes));
  if (!sent) breakDown(sent.error(), true);
}

SequenceNumber ControlThread::promiseLimit() {
  joinedAt_ = now();
  const double calls = std::floor(kSlackSafety * callsPerSecond_ * roundSeconds_);
  const auto slack = kSlackMin + static_cast<SequenceNumber>(std::min(calls, static_cast<double>(kSlackMax)));
  return parts_.gate.promise(slack);
}

void ControlThread::liftLimit() {
  parts_.gate.lift();
  roundSeconds_ += kSmoothing * (seconds(now() - joinedAt_) - roundSeconds_);
}

void ControlThread::publish(const control::Epoch& epoch) {
  parts_.board.publish(epoch);
  const base::Hash128 hash = epoch.table->hash();
  if (hash != tableHash_) monitor_.restart();
  tableHash_ = hash;
}

// ---- the loop ----

void ControlThread::loop() {
  const auto receiver = [this](Rank from, std::string_view message) { receive(from, message); };
  rateSampledAt_ = now();
  while (!stopping_.load()) {
    parts_.mesh.poll(waitingForChannels_.empty() ? kIdleTick : kChannelTick, receiver);
    runCommands();
    if (broken()) continue;
    takeSamples();
    offerCandidates();
    checkReadiness();
    sampleAttributes();
  }
  parts_.mesh.poll(0ms, receiver);
}

void ControlThread::receive(Rank from, std::string_view message) {
  if (message.empty()) return;
  const auto tag = static_cast<MessageTag>(message[0]);
  message.remove_prefix(1);
  if (tag == MessageTag::kAbort) {
    breakDown({ErrorCode::kAborted, fmt::format("stopped by rank {}: {}", from, message)}, false);
  } else if (tag == MessageTag::kGoodbye) {
    countGoodbye(from);
  } else if (tag == MessageTag::kControl && !broken()) {
    auto received = plane_->receive(from, message);
    if (!received) breakDown(received.error(), true);
  }
}

void ControlThread::countGoodbye(Rank from) {
  goodbyes_[static_cast<std::size_t>(from)] = true;
  if (!std::all_of(goodbyes_.begin(), goodbyes_.end(), [](bool said) { return said; })) return;
  std::scoped_lock lock(mutex_);
  allSaidGoodbye_ = true;
  goodbyeChanged_.notify_all();
}

void ControlThread::runCommands() {
  std::vector<std::function<void()>> commands;
  {
    std::scoped_lock lock(mutex_);
    commands.swap(commands_);
  }
  for (auto& command : commands) command();
}

void ControlThread::takeSamples() {
  std::deque<Sample> samples;
  {
    std::scoped_lock lock(mutex_);
    samples.swap(samples_);
  }
  bool changed = false;
  for (const Sample& sample : samples) changed |= monitor_.add(sample.slot, sample.links, sample.seconds);
  if (auto rates = monitor_.rates(); rates && !samples.empty()) {
    for (std::size_t rank = 0; rank < rates->size(); ++rank) {
      auto set =
          plane_->setAttribute(policy::kLinkRateAttribute, static_cast<std::uint32_t>(rank), (*rates)[rank]);
      THESEUS_CHECK(set.has_value(), "a built-in attribute is always known");
    }
  }
  if (changed) plane_->requestRound();
}

void ControlThread::offerCandidates() {
  const auto& candidates = parts_.engine.candidates();
  if (offered_ == candidates.size()) return;
  std::scoped_lock lock(materializeMutex_);
  for (; offered_ < candidates.size(); ++offered_) {
    materializeQueue_.emplace_back(static_cast<control::ScheduleSlot>(offered_), candidates[offered_]);
  }
  materializeChanged_.notify_one();
}

void ControlThread::checkReadiness() {
  const auto ready =
      std::partition(waitingForChannels_.begin(), waitingForChannels_.end(),
                     [this](control::ScheduleSlot slot) { return !parts_.data.connected(slot); });
  if (ready == waitingForChannels_.end()) return;
  std::for_each(ready, waitingForChannels_.end(),
                [this](control::ScheduleSlot slot) { plane_->setReady(slot, true); });
  waitingForChannels_.erase(ready, waitingForChannels_.end());
  plane_->requestRound();
}

void ControlThread::sampleAttributes() {
  const base::TimePoint time = now();
  if (time - rateSampledAt_ < kIdleTick) return;
  const SequenceNumber issued = parts_.gate.issued();
  const double rate = static_cast<double>(issued - issuedBefore_) / seconds(time - rateSampledAt_);
  callsPerSecond_ += kSmoothing * (rate - callsPerSecond_);
  issuedBefore_ = issued;
  rateSampledAt_ = time;
  for (const Sampler& sampler : samplers_) {
    // Not yet in force on this rank: the declaration's round has not completed. The next tick tries again.
    [[maybe_unused]] auto set = plane_->setAttribute(sampler.name, 0, sampler.sample());
  }
}

void ControlThread::materializeLoop() {
  while (true) {
    std::pair<control::ScheduleSlot, policy::Candidate> job;
    {
      std::unique_lock lock(materializeMutex_);
      materializeChanged_.wait_for(lock, kIdleTick,
                                   [this] { return stopping_.load() || !materializeQueue_.empty(); });
      if (stopping_.load()) return;
      if (materializeQueue_.empty()) continue;
      job = std::move(materializeQueue_.front());
      materializeQueue_.pop_front();
    }
    const control::ScheduleSlot slot = job.first;
    auto preparation = std::make_shared<Result<policy::Preparation>>(policy::prepare(job.second));
    bool usable = preparation->has_value();
    if (usable) {
      auto node = materialize(job.second.name, **preparation, rank_);
      usable = node.has_value();  // if not, its ready bit stays unset, so no rank ever uses it
      if (usable) parts_.data.install(slot, std::move(*node));
    }
    post([this, slot, preparation, usable] {
      parts_.engine.provide(slot, std::move(*preparation));
      if (usable) waitingForChannels_.push_back(slot);
    });
  }
}

void ControlThread::finish(std::chrono::milliseconds timeout) {
  if (broken()) {
    // Let the reason reach the others before the connections close.
    [[maybe_unused]] auto flushed = ask([] { return std::string(); });
    return;
  }
  post([this] {
    for (Rank peer = 0; peer < size_; ++peer) {
      [[maybe_unused]] auto sent =
          parts_.mesh.send(peer, std::string(1, static_cast<char>(MessageTag::kGoodbye)));
    }
  });
  std::unique_lock lock(mutex_);
  goodbyeChanged_.wait_for(lock, timeout, [this] { return allSaidGoodbye_ || reason_.has_value(); });
}

}  // namespace theseus::runtime
