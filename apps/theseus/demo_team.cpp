#include "demo_team.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/check.h"

namespace theseus::demo {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Longer than the communicator's own time-outs, so that its error, which says more, comes first.
constexpr std::chrono::seconds kPatience{90};

volatile std::sig_atomic_t interruptedBy = 0;

void noteInterrupt(int signal) { interruptedBy = signal; }

Result<CollectiveOutcome> combine(const std::vector<WorkerMessage>& messages) {
  CollectiveOutcome outcome;
  const WorkerMessage& first = messages.front();
  outcome.number = first.collective;
  outcome.sequence = first.sequence;
  outcome.schedule = first.schedule;
  outcome.round = first.round;
  for (const WorkerMessage& message : messages) {
    if (message.schedule != first.schedule || message.sequence != first.sequence ||
        message.round != first.round) {
      return fail(ErrorCode::kMismatch,
                  fmt::format("collective {}: rank 0 ran '{}' (sequence {}, epoch {}) but rank {} ran '{}' "
                              "(sequence {}, epoch {})",
                              first.collective, first.schedule, first.sequence, first.round, message.rank,
                              message.schedule, message.sequence, message.round));
    }
    outcome.seconds = std::max(outcome.seconds, message.seconds);
    outcome.limitWaitSeconds = std::max(outcome.limitWaitSeconds, message.limitWaitSeconds);
    outcome.wrong += message.wrong;
  }
  return outcome;
}

}  // namespace

void catchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = noteInterrupt;  // no SA_RESTART: poll() shall return
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

Result<DemoTeam> DemoTeam::start(const std::vector<ProcessRequest>& requests) {
  DemoTeam team;
  for (const ProcessRequest& request : requests) {
    auto worker = DemoProcess::start(request);
    if (!worker) return fail(worker.error());
    team.workers_.push_back(std::move(*worker));
  }
  if (auto ready = team.gather("ready", nullptr); !ready) return fail(ready.error());
  return team;
}

Result<CollectiveOutcome> DemoTeam::run(std::uint64_t number, const Midway* midway) {
  THESEUS_TRY(tellAll(fmt::format("prepare {}", number)));
  if (auto prepared = gather("prepared", nullptr); !prepared) return fail(prepared.error());
  THESEUS_TRY(tellAll("go"));
  auto done = gather("done", midway);
  if (!done) return fail(done.error());
  auto outcome = combine(*done);
  if (outcome) outcome->mixed = midway != nullptr;
  return outcome;
}

Status DemoTeam::tell(int rank, const std::string& line) {
  return workers_[static_cast<std::size_t>(rank)].send(line);
}

Status DemoTeam::tellAll(const std::string& line) {
  for (DemoProcess& worker : workers_) THESEUS_TRY(worker.send(line));
  return {};
}

Result<WorkerMessage> DemoTeam::status() {
  // All are asked, so that gather() may wait for all.
  THESEUS_TRY(tellAll("status"));
  auto messages = gather("status", nullptr);
  if (!messages) return fail(messages.error());
  return messages->front();
}

Result<std::vector<WorkerMessage>> DemoTeam::gather(const std::string& event, const Midway* midway) {
  const auto start = SteadyClock::now();
  std::vector<WorkerMessage> messages(workers_.size());
  std::vector<bool> have(workers_.size(), false);
  bool acted = midway == nullptr;
  while (true) {
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      if (have[rank]) continue;
      const auto line = workers_[rank].nextLine();
      if (!line) continue;
      auto message = parseWorkerMessage(*line);
      if (!message) return fail(message.error());
      if (message->event != event) {
        return fail(ErrorCode::kIo,
                    fmt::format("rank {}: '{}' where '{}' was due", rank, message->event, event));
      }
      messages[rank] = std::move(*message);
      have[rank] = true;
    }
    const bool complete = std::find(have.begin(), have.end(), false) == have.end();
    const std::chrono::duration<double> elapsed = SteadyClock::now() - start;
    if (!acted && (complete || elapsed >= midway->after)) {
      acted = true;
      THESEUS_TRY(midway->action());
      continue;
    }
    if (complete) return messages;
    if (elapsed > kPatience) {
      const auto silent = std::find(have.begin(), have.end(), false) - have.begin();
      return fail(ErrorCode::kTimeout,
                  fmt::format("rank {} has not said '{}' for {} s", silent, event, kPatience.count()));
    }
    THESEUS_TRY(poll(acted ? std::chrono::duration<double>(1.0) : midway->after - elapsed));
  }
}

Status DemoTeam::poll(std::chrono::duration<double> bound) {
  std::vector<pollfd> descriptors;
  for (const DemoProcess& worker : workers_) descriptors.push_back({worker.reportDescriptor(), POLLIN, 0});
  const int milliseconds = std::max(1, static_cast<int>(bound.count() * 1000));
  const int ready = ::poll(descriptors.data(), descriptors.size(), milliseconds);
  if (interruptedBy != 0) {
    return fail(ErrorCode::kAborted, fmt::format("interrupted ({})", ::strsignal(interruptedBy)));
  }
  if (ready < 0 && errno != EINTR) return fail(ErrorCode::kIo, fmt::format("poll: {}", std::strerror(errno)));
  for (std::size_t rank = 0; ready > 0 && rank < descriptors.size(); ++rank) {
    if (descriptors[rank].revents != 0) THESEUS_TRY(workers_[rank].readSome());
  }
  return {};
}

}  // namespace theseus::demo
