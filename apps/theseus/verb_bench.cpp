// `theseus bench COLLECTIVE`: time, bandwidth and wrong elements by message size; `theseus bench swap`: a
// stream under forced swaps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "bench_launch.h"
#include "bench_pattern.h"
#include "bench_swap.h"
#include "runtime/materialize.h"
#include "theseus/theseus.h"
#include "verbs.h"

namespace theseus::cli {
namespace {

using nlohmann::json;

struct BenchOptions {
  std::string what;
  int ranks = 2;
  std::string transport = "auto";
  std::string schedule;
  std::string minBytes = "8";
  std::string maxBytes = "4M";
  int factor = 4;
  std::string type = "float32";
  std::string op = "sum";
  int iterations = 20;
  int warmup = 5;
  bool inPlace = false;
  std::string jsonFile;
  int collectives = 2000;  // swap
  int every = 20;          // swap
};

/// "8", "64K", "4M", "1G".
Result<std::uint64_t> parseBytes(const std::string& text) {
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (used == 0 || shift < 0 || value > (1ull << 40 >> shift)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("size '{}': write a number with K, M or G", text));
  }
  return value << shift;
}

struct Row {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::string schedule;
  double microseconds = 0;
  double algorithmGbps = 0;
  double busGbps = 0;
  std::uint64_t wrong = 0;
};

Status callOnce(Communicator& communicator, const BenchCall& call, const void* source, void* destination) {
  const Reduction reduction{call.type, call.op};
  switch (call.collective) {
    case Collective::kAllReduce:
      return communicator.allReduce(source, destination, call.count, reduction);
    case Collective::kAllGather:
      return communicator.allGather(source, destination, call.count, call.type);
    case Collective::kReduceScatter:
      return communicator.reduceScatter(source, destination, call.count, reduction);
    case Collective::kBroadcast:
      return communicator.broadcast(source, destination, call.count, {call.type, call.root});
    case Collective::kAllToAll:
      return communicator.allToAll(source, destination, call.count, call.type);
    default:
      return fail(ErrorCode::kUnsupported, fmt::format("there is no benchmark of {}", name(call.collective)));
  }
}

/// A rank's buffers for one size. In place, the source lies where MPI and NCCL want it in the larger buffer.
struct Buffers {
  std::vector<std::byte> source;
  std::vector<std::byte> destination;
  std::byte* from = nullptr;
  std::byte* to = nullptr;
};

void prepare(const BenchCall& call, int rank, bool inPlace, Buffers& buffers) {
  const std::size_t size = dataTypeBytes(call.type);
  fillSource(call, rank, buffers.source);
  buffers.destination.assign(destinationElements(call) * size, std::byte{0xA5});
  buffers.from = buffers.source.data();
  buffers.to = buffers.destination.data();
  if (!inPlace || call.collective == Collective::kAllToAll) return;
  const std::size_t block = call.count * size * static_cast<std::size_t>(rank);
  if (call.collective == Collective::kReduceScatter) {
    buffers.to = buffers.source.data() + block;
    return;
  }
  buffers.from = buffers.destination.data() + (call.collective == Collective::kAllGather ? block : 0);
  std::copy(buffers.source.begin(), buffers.source.end(), buffers.from);
}

Result<Row> measure(Communicator& communicator, const BenchOptions& options, BenchCall call,
                    std::uint64_t bytes) {
  Row row;
  row.bytes = bytes;
  row.count = call.count;
  Buffers buffers;
  prepare(call, communicator.rank(), options.inPlace, buffers);
  THESEUS_TRY(callOnce(communicator, call, buffers.from, buffers.to));
  row.schedule = communicator.lastCall().schedule;
  std::uint64_t wrong = countWrong(call, communicator.rank(), buffers.to);
  for (int i = 0; i < options.warmup; ++i)
    THESEUS_TRY(callOnce(communicator, call, buffers.from, buffers.to));
  std::vector<double> seconds;
  for (int i = 0; i < options.iterations; ++i) {
    THESEUS_TRY(callOnce(communicator, call, buffers.from, buffers.to));
    seconds.push_back(communicator.lastCall().seconds);
  }
  // Once more on fresh data: the timed calls may have run another schedule than the first.
  call.seed += 1;
  prepare(call, communicator.rank(), options.inPlace, buffers);
  THESEUS_TRY(callOnce(communicator, call, buffers.from, buffers.to));
  wrong += countWrong(call, communicator.rank(), buffers.to);
  // A time is that of the slowest rank, a row's the median over iterations.
  THESEUS_TRY(communicator.allReduce(seconds.data(), seconds.data(), seconds.size(),
                                     {DataType::kFloat64, ReduceOp::kMax}));
  THESEUS_TRY(communicator.allReduce(&wrong, &wrong, 1, {DataType::kUint64, ReduceOp::kSum}));
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  const double median = seconds[seconds.size() / 2];
  row.microseconds = median * 1e6;
  row.algorithmGbps = static_cast<double>(bytes) / median * 1e-9;
  row.busGbps = row.algorithmGbps * busFactor(call.collective, call.ranks);
  row.wrong = wrong;
  return row;
}

json rowJson(const Row& row, bool inPlace) {
  return {{"bytes", row.bytes},        {"count", row.count},          {"in_place", inPlace},
          {"schedule", row.schedule},  {"time_us", row.microseconds}, {"algbw_gbps", row.algorithmGbps},
          {"busbw_gbps", row.busGbps}, {"wrong", row.wrong}};
}

void printHeader(const BenchOptions& options, int ranks) {
  fmt::print(
      "# theseus bench {}: {} ranks, transport {}, {} place; time = median of {} over the slowest rank; "
      "GB/s\n",
      options.what, ranks, options.transport, options.inPlace ? "in" : "out of", options.iterations);
  fmt::print("#{:>12} {:>12} {:>9} {:>6} {:>11} {:>8} {:>8} {:>7}  {}\n", "size (B)", "count", "type",
             "redop", "time (us)", "algbw", "busbw", "#wrong", "schedule");
}

Result<int> benchRank(const BenchOptions& options, const CommunicatorOptions& communicatorOptions) {
  auto created = Communicator::create(communicatorOptions);
  if (!created) return fail(created.error());
  Communicator& communicator = **created;
  BenchCall call;
  call.collective = *parseCollective(options.what);
  call.type = *parseDataType(options.type);
  call.op = *parseReduceOp(options.op);
  call.ranks = communicator.size();
  const bool first = communicator.rank() == 0;
  if (first) printHeader(options, call.ranks);
  json rows = json::array();
  std::uint64_t wrong = 0;
  const std::uint64_t last = *parseBytes(options.maxBytes);
  for (std::uint64_t bytes = *parseBytes(options.minBytes); bytes <= last;
       bytes *= static_cast<std::uint64_t>(options.factor)) {
    // nccl-tests' size is that of the larger buffer.
    const bool blocked =
        call.collective != Collective::kAllReduce && call.collective != Collective::kBroadcast;
    call.count = bytes / dataTypeBytes(call.type) / static_cast<std::uint64_t>(blocked ? call.ranks : 1);
    auto row = measure(communicator, options, call, bytes);
    if (!row) return fail(row.error());
    wrong += row->wrong;
    rows.push_back(rowJson(*row, options.inPlace));
    if (!first) continue;
    fmt::print(" {:>12} {:>12} {:>9} {:>6} {:>11.2f} {:>8.3f} {:>8.3f} {:>7}  {}\n", row->bytes, row->count,
               options.type, options.op, row->microseconds, row->algorithmGbps, row->busGbps, row->wrong,
               row->schedule);
    std::fflush(stdout);
  }
  if (first && !options.jsonFile.empty()) {
    std::ofstream(options.jsonFile) << json{{"collective", options.what}, {"transport", options.transport},
                                            {"ranks", call.ranks},        {"dtype", options.type},
                                            {"op", options.op},           {"rows", rows}}
                                           .dump(2)
                                    << "\n";
  }
  return wrong == 0 ? 0 : 1;
}

/// A schedule option that names a file stands for the file's text.
Result<std::string> scheduleText(const std::string& schedule) {
  std::ifstream file(schedule, std::ios::binary);
  if (schedule.empty() || !file) return schedule;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Status checkOptions(const BenchOptions& options) {
  if (options.what == "swap") return {};
  if (!parseCollective(options.what))
    return fail(ErrorCode::kInvalidArgument, fmt::format("collective '{}' is unknown", options.what));
  if (!parseDataType(options.type))
    return fail(ErrorCode::kInvalidArgument, fmt::format("type '{}' is unknown", options.type));
  if (!parseReduceOp(options.op))
    return fail(ErrorCode::kInvalidArgument, fmt::format("operation '{}' is unknown", options.op));
  auto first = parseBytes(options.minBytes);
  if (!first) return fail(first.error());
  auto last = parseBytes(options.maxBytes);
  if (!last) return fail(last.error());
  if (*first == 0 || options.factor < 2)
    return fail(ErrorCode::kInvalidArgument, "sizes start above 0 and grow by a factor of 2 or more");
  return {};
}

int usageError(const Error& error) {
  fmt::print(stderr, "theseus bench: {}\n", error.message);
  return 2;
}

int bench(const BenchOptions& options) {
  if (auto checked = checkOptions(options); !checked) return usageError(checked.error());
  auto text = scheduleText(options.schedule);
  if (!text) return usageError(text.error());
  if (!text->empty()) {
    auto fixed = runtime::fixedSchedules(*text, options.ranks);
    if (!fixed) return usageError(fixed.error());
  }
  CommunicatorOptions communicator;
  communicator.transport = options.transport;
  communicator.schedule = *text;
  communicator.ctl = options.what == "swap";
  auto code = runRanks(options.ranks, communicator, [&options](const CommunicatorOptions& rankOptions) {
    auto done = options.what == "swap"
                    ? benchSwapRank({options.collectives, options.every, options.jsonFile}, rankOptions)
                    : benchRank(options, rankOptions);
    if (done) return *done;
    fmt::print(stderr, "theseus bench: rank {}: {}\n", rankOptions.rank, done.error().message);
    return 1;
  });
  if (!code) return usageError(code.error());
  return *code;
}

}  // namespace

void addBench(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* verb =
      app.add_subcommand("bench", "measure a collective, or a stream of collectives under forced swaps");
  verb->add_option("what", options->what, "allreduce, allgather, reducescatter, broadcast, alltoall, or swap")
      ->required();
  verb->add_option("-n,--ranks", options->ranks, "ranks, as processes of this host")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  verb->add_option("--transport", options->transport, "shm, tcp or auto")->capture_default_str();
  verb->add_option("--schedule", options->schedule,
                   "generator name, \"ring(channels=2)\", or a plan file; default: the policy's");
  verb->add_option("-b,--min-bytes", options->minBytes, "smallest size")->capture_default_str();
  verb->add_option("-e,--max-bytes", options->maxBytes, "largest size")->capture_default_str();
  verb->add_option("-f,--factor", options->factor, "factor between sizes")->capture_default_str();
  verb->add_option("-d,--type", options->type, "element type")->capture_default_str();
  verb->add_option("-o,--op", options->op, "sum, prod, min, max, avg")->capture_default_str();
  verb->add_option("--iters", options->iterations, "timed calls a size")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  verb->add_option("--warmup", options->warmup, "untimed calls a size")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_flag("--in-place", options->inPlace, "source inside destination");
  verb->add_option("--collectives", options->collectives, "swap: length of the stream")
      ->capture_default_str();
  verb->add_option("--every", options->every, "swap: collectives between two forced swaps")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  verb->add_option("--json", options->jsonFile, "write the figures to this file");
  verb->callback([options, &exitCode] { exitCode = bench(*options); });
}

}  // namespace theseus::cli
