// Options of a communicator and of its calls. Plain values.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "theseus/types.h"

namespace theseus {

struct Reduction {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

struct Rooted {
  DataType type = DataType::kFloat32;
  int root = 0;
};

enum class AttributeJoin { kMin, kMax };

/// Ranks that are threads of one process meet through such an object (tests, examples) instead of a network.
class LocalJob;
std::shared_ptr<LocalJob> makeLocalJob(int size);

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string masterAddress = "127.0.0.1";  // numeric or a name; rank 0 listens there
  int masterPort = 29500;
  std::string
      bindAddress;  // numeric address of this rank's own listeners; empty = chosen by the route to the master
  std::string secret;              // shared by the job; ranks without it are strangers
  std::string transport = "auto";  // loopback | shm | tcp | auto (shm when all ranks share a host, else tcp)
  std::chrono::milliseconds timeout{
      30000};            // for joining, for connecting, and for a collective in which nothing moves
  std::string schedule;  // fixed schedule (short name, generator call or plan text): the policy is off
  bool control = true;   // the control plane: rounds, policy, swaps
  bool ctl = true;       // unix socket for `theseus ctl`
  double emulatedLinkBytesPerSecond = 0;  // tcp: token bucket on egress
  std::shared_ptr<LocalJob> local;        // set: all ranks are threads of this process
};

}  // namespace theseus
