#include "runtime/local_job.h"

#include <unistd.h>

#include <atomic>
#include <functional>

#include <fmt/format.h>

#include "base/check.h"
#include "runtime/bootstrap.h"
#include "runtime/bootstrap_rendezvous.h"
#include "runtime/message_mesh.h"

namespace theseus {

namespace {

constexpr std::size_t kMailboxBytesMax = 512u << 20;

std::string uniqueName() {
  static std::atomic<std::uint64_t> jobs{0};
  // Relaxed: only the number's uniqueness matters, it orders nothing.
  return fmt::format("local-{}-{}", ::getpid(), jobs.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace

std::shared_ptr<LocalJob> makeLocalJob(int size) { return std::make_shared<LocalJob>(size); }

LocalJob::LocalJob(int size) : size_(size), name_(uniqueName()), hub_(transport::makeLoopbackHub(size)) {
  THESEUS_CHECK(size >= 1, "a job has at least one rank");
  callsOfRank_.resize(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) mailboxes_.push_back(std::make_unique<Mailbox>());
}

Result<std::vector<std::string>> LocalJob::exchange(Rank rank, const std::string& tag, std::string blob,
                                                    std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = callsOfRank_.at(static_cast<std::size_t>(rank))++;
  Exchange& exchange = exchanges_[number];
  if (exchange.blobs.empty()) {
    exchange.tag = tag;
    exchange.blobs.resize(static_cast<std::size_t>(size_));
  }
  exchange.blobs[static_cast<std::size_t>(rank)] = std::move(blob);
  ++exchange.arrived;
  if (exchange.tag != tag && !exchange.error) {
    exchange.error =
        Error{ErrorCode::kMismatch,
              fmt::format("the ranks are out of step: one is at exchange \"{}\", rank {} at \"{}\"",
                          exchange.tag, rank, tag)};
  }
  changed_.notify_all();
  const bool complete =
      changed_.wait_for(lock, timeout, [&] { return exchange.error || exchange.arrived == size_; });
  if (!complete && !exchange.error) {
    std::vector<Rank> absent;
    for (Rank other = 0; other < size_; ++other) {
      if (!exchange.blobs[static_cast<std::size_t>(other)]) absent.push_back(other);
    }
    exchange.error = Error{ErrorCode::kTimeout,
                           fmt::format("{} of {} did not reach exchange \"{}\" of the rendezvous within {}",
                                       runtime::rankList(absent), size_, tag, runtime::secondsText(timeout))};
    changed_.notify_all();
  }
  Result<std::vector<std::string>> result;
  if (exchange.error) {
    result = fail(*exchange.error);
  } else {
    for (const auto& part : exchange.blobs) result->push_back(*part);
  }
  if (++exchange.finished == size_) exchanges_.erase(number);
  return result;
}

void LocalJob::openMailbox(Rank rank) {
  Mailbox& mailbox = *mailboxes_.at(static_cast<std::size_t>(rank));
  const std::lock_guard lock(mailbox.mutex);
  mailbox.letters.clear();
  mailbox.bytes = 0;
  mailbox.open = true;
  mailbox.rung = false;
}

void LocalJob::closeMailbox(Rank rank) {
  {
    Mailbox& mailbox = *mailboxes_.at(static_cast<std::size_t>(rank));
    const std::lock_guard lock(mailbox.mutex);
    mailbox.letters.clear();
    mailbox.bytes = 0;
    mailbox.open = false;
  }
  for (Rank other = 0; other < size_; ++other) {
    if (other != rank) (void)post(other, Letter{rank, {}, true});
  }
}

bool LocalJob::post(Rank to, Letter letter) {
  Mailbox& mailbox = *mailboxes_.at(static_cast<std::size_t>(to));
  {
    const std::lock_guard lock(mailbox.mutex);
    if (!mailbox.open) return true;
    if (mailbox.bytes + letter.message.size() > kMailboxBytesMax) return false;
    mailbox.bytes += letter.message.size();
    mailbox.letters.push_back(std::move(letter));
  }
  mailbox.changed.notify_all();
  return true;
}

void LocalJob::ring(Rank rank) {
  Mailbox& mailbox = *mailboxes_.at(static_cast<std::size_t>(rank));
  {
    const std::lock_guard lock(mailbox.mutex);
    mailbox.rung = true;
  }
  mailbox.changed.notify_all();
}

std::deque<LocalJob::Letter> LocalJob::take(Rank rank, std::chrono::milliseconds timeout) {
  Mailbox& mailbox = *mailboxes_.at(static_cast<std::size_t>(rank));
  std::unique_lock lock(mailbox.mutex);
  mailbox.changed.wait_for(lock, timeout, [&] { return mailbox.rung || !mailbox.letters.empty(); });
  mailbox.rung = false;
  mailbox.bytes = 0;
  return std::exchange(mailbox.letters, {});
}

namespace runtime {
namespace {

class LocalRendezvous final : public Rendezvous {
 public:
  LocalRendezvous(std::shared_ptr<LocalJob> job, Rank rank, std::chrono::milliseconds timeout)
      : job_(std::move(job)), rank_(rank), timeout_(timeout) {}

  Result<std::vector<std::string>> exchange(const std::string& tag, std::string blob) override {
    return job_->exchange(rank_, tag, std::move(blob), timeout_);
  }

 private:
  std::shared_ptr<LocalJob> job_;
  Rank rank_;
  std::chrono::milliseconds timeout_;
};

class LocalMesh final : public MessageMesh {
 public:
  LocalMesh(std::shared_ptr<LocalJob> job, Rank rank) : job_(std::move(job)), rank_(rank) {
    job_->openMailbox(rank_);
  }
  ~LocalMesh() override { job_->closeMailbox(rank_); }

  std::string address() const override { return std::to_string(rank_); }

  Status setPeers(std::vector<std::string> addresses) override {
    if (static_cast<int>(addresses.size()) == job_->size()) return {};
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} addresses were given for a job of {} ranks", addresses.size(), job_->size()));
  }

  Status send(Rank to, std::string message) override {
    if (to < 0 || to >= job_->size()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("there is no rank {} in a job of {}", to, job_->size()));
    }
    if (message.size() > kMessageBytesMax)
      return fail(ErrorCode::kInvalidArgument, "a message is larger than 64 MiB");
    if (job_->post(to, LocalJob::Letter{rank_, std::move(message), false})) return {};
    return fail(ErrorCode::kOutOfMemory,
                fmt::format("rank {} does not take the messages that wait for it", to));
  }

  void poll(std::chrono::milliseconds timeout, const Receiver& receiver) override {
    for (const LocalJob::Letter& letter : job_->take(rank_, timeout)) {
      if (!letter.goodbye) {
        receiver(letter.from, letter.message);
      } else if (onLeft) {
        onLeft(letter.from);
      }
    }
  }

  void wake() override { job_->ring(rank_); }

 private:
  std::shared_ptr<LocalJob> job_;
  Rank rank_;
};

}  // namespace

std::unique_ptr<Rendezvous> makeLocalRendezvous(std::shared_ptr<LocalJob> job, int rank,
                                                std::chrono::milliseconds timeout) {
  return std::make_unique<LocalRendezvous>(std::move(job), rank, timeout);
}

std::unique_ptr<MessageMesh> makeLocalMesh(std::shared_ptr<LocalJob> job, int rank) {
  return std::make_unique<LocalMesh>(std::move(job), rank);
}

}  // namespace runtime
}  // namespace theseus
