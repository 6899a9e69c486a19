// Reads the workers' JSON lines. Pure functions on text; the only place of the demonstration that parses
// JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "theseus/result.h"

namespace theseus::demo {

struct WorkerMessage {
  std::string event;  // ready, prepared, done, status
  int rank = 0;
  std::uint64_t collective = 0;
  double seconds = 0;
  std::string schedule;
  std::uint64_t sequence = 0;
  std::uint64_t round = 0;
  double limitWaitSeconds = 0;
  std::uint64_t wrong = 0;
  std::string status;   // JSON text
  std::string explain;  // JSON text
};

Result<WorkerMessage> parseWorkerMessage(const std::string& line);

/// One change of schedule as the runtime tells it.
struct RuntimeSwap {
  std::uint64_t round = 0;
  std::uint64_t switchAt = 0;  // sequence number
  std::string collective;
  std::string from;
  std::string to;
  std::string reason;
};

/// The array "swaps" of Communicator::statusJson(), those of allReduce that concern messages of `bytes`.
Result<std::vector<RuntimeSwap>> parseSwaps(const std::string& statusJson, std::uint64_t bytes);

/// Communicator::explainJson() for people: a line for each schedule that can serve the call.
Result<std::vector<std::string>> explainLines(const std::string& explainJson);

/// What all ranks know of each other's links (attribute link_rate of Communicator::statusJson()), as text;
/// empty if nothing.
std::string linkRatesText(const std::string& statusJson);

/// `text` as a JSON string with its quotes.
std::string quoteJson(const std::string& text);

}  // namespace theseus::demo
