// The Communicator: what a program uses. One object for each rank of a job; all ranks make the same calls in
// the same order. Calls of one communicator come from one thread at a time; different communicators are
// independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "theseus/options.h"
#include "theseus/result.h"
#include "theseus/types.h"

namespace theseus {

/// What one collective did on this rank; for benchmarks and views.
struct CallReport {
  std::uint64_t sequence = 0;
  std::uint64_t round = 0;      // epoch in force: the round that decided it
  std::string schedule;         // short name
  double seconds = 0;           // from the call to its completion on this rank
  double limitWaitSeconds = 0;  // part of it spent waiting for a round at a limit
};

class Communicator {
 public:
  /// Joins the job (collective over all ranks; bounded by options.timeout). Errors name the ranks that did
  /// not come.
  static Result<std::unique_ptr<Communicator>> create(const CommunicatorOptions& options);
  /// create() with options from the environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and THESEUS_*.
  static Result<std::unique_ptr<Communicator>> createFromEnvironment();
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;

  // Collectives, blocking. Buffers are host memory of `count` elements unless said otherwise; the caller owns
  // them and must not touch them during the call. In place: destination == source (allGather: source ==
  // destination + rank*count; reduceScatter: destination
  // == source + rank*count), nothing else may overlap. After an error the communicator is broken and every
  // later call returns that error.
  Status allReduce(const void* source, void* destination, std::size_t count, const Reduction& reduction);
  /// `count` elements from each rank; destination holds size()*count.
  Status allGather(const void* source, void* destination, std::size_t count, DataType type);
  /// `count` elements for each rank; source holds size()*count.
  Status reduceScatter(const void* source, void* destination, std::size_t count, const Reduction& reduction);
  /// `source` is read on the root only and may be null elsewhere; destination may equal source on the root.
  Status broadcast(const void* source, void* destination, std::size_t count, const Rooted& rooted);
  /// Block r of `count` elements of source goes to rank r; both hold size()*count.
  Status allToAll(const void* source, void* destination, std::size_t count, DataType type);
  /// All ranks have called it when it returns.
  Status barrier();

  /// Adds a schedule for all ranks: text of an execution plan (JSON), an MSCCL XML or a generator call. It is
  /// verified here before anything is sent; it can serve calls once every rank has it ready. Returns its
  /// content hash (32 hexadecimal digits).
  Result<std::string> newSched(const std::string& text);
  /// Takes a schedule out of use, named by hash or short name.
  Status dropSched(const std::string& schedule);
  /// Operator's choice for all ranks: from some collective on, `collective` uses `schedule` (hash or short
  /// name; "auto" = the policy's).
  Status swap(Collective collective, const std::string& schedule);
  /// An attribute set from outside, for the policy and for `usable`/`score` expressions.
  Status setExo(const std::string& name, const std::string& value);
  /// An attribute measured inside: `sampler` is called on a thread of the runtime before each round; joined
  /// over ranks by max (or min).
  Status newAttr(const std::string& name, AttributeJoin join, std::function<double()> sampler);

  /// Token bucket on this rank's outgoing link (transport tcp), for demonstrations where no real link can be
  /// slowed; 0 = off. Between calls.
  Status emulateLinkRate(double bytesPerSecond);

  CallReport lastCall() const;
  /// State for people and tools, JSON: rank, epoch, tables, candidates, link rates, swaps. Any thread.
  std::string statusJson() const;
  /// Why `collective` at `bytes` runs as it does, JSON. Any thread.
  std::string explainJson(Collective collective, std::uint64_t bytes) const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace theseus
