// Ranks that are threads of one process: where they meet, their mailboxes, and the hub of the loopback
// transport. Shared by all ranks of the job (shared_ptr); every method is safe on any thread. Several
// communicators may be made on one job, one after another.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "theseus/options.h"
#include "theseus/result.h"
#include "transport/endpoint.h"

namespace theseus {

class LocalJob {
 public:
  explicit LocalJob(int size);

  int size() const { return size_; }
  /// Unique within this process and over processes: "local-PID-NUMBER".
  const std::string& name() const { return name_; }
  const std::shared_ptr<transport::LoopbackHub>& hub() const { return hub_; }

  /// The k-th call of each rank on this job makes one exchange. Waits at most `timeout` for the other ranks.
  Result<std::vector<std::string>> exchange(Rank rank, const std::string& tag, std::string blob,
                                            std::chrono::milliseconds timeout);

  struct Letter {
    Rank from = 0;
    std::string message;
    bool goodbye = false;
  };
  /// Empties the mailbox of `rank` and opens it.
  void openMailbox(Rank rank);
  /// Afterwards letters to `rank` are thrown away; every other open mailbox gets a goodbye.
  void closeMailbox(Rank rank);
  /// False: the mailbox is full.
  bool post(Rank to, Letter letter);
  void ring(Rank rank);
  /// Takes what is there; waits at most `timeout` for a letter or a ring.
  std::deque<Letter> take(Rank rank, std::chrono::milliseconds timeout);

 private:
  struct Exchange {
    std::string tag;  // of the first to come
    std::vector<std::optional<std::string>> blobs;
    int arrived = 0;
    int finished = 0;  // ranks that have left it; the last one removes it
    std::optional<Error> error;
  };
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Letter> letters;
    std::size_t bytes = 0;
    bool open = false;
    bool rung = false;
  };

  const int size_;
  std::string name_;
  std::shared_ptr<transport::LoopbackHub> hub_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::uint64_t, Exchange> exchanges_;
  std::vector<std::uint64_t> callsOfRank_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // each guarded by its own mutex
};

}  // namespace theseus
