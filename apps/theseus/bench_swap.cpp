#include "bench_swap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "bench_pattern.h"
#include "theseus/communicator.h"

namespace theseus::cli {
namespace {

constexpr std::array kSchedules = {"ring", "halving_doubling", "all_pairs", "binary_tree"};
constexpr std::uint64_t kBytesMin = 8;
constexpr std::uint64_t kBytesMax = 4u << 20;

/// What one rank saw of the stream.
struct Observed {
  std::uint64_t wrong = 0;
  std::uint64_t disagreements = 0;  // collectives that ranks ran by different schedules
  std::uint64_t changes = 0;        // collectives whose schedule was not that of the one before
  std::vector<double> seconds;
  std::vector<double> limitWaits;  // of collectives that waited
};

/// Sizes spread evenly over their logarithm; the same on all ranks.
std::uint64_t randomElements(base::Random& random) {
  const double exponent = random.unit();
  const double bytes =
      static_cast<double>(kBytesMin) *
      std::exp(exponent * std::log(static_cast<double>(kBytesMax) / static_cast<double>(kBytesMin)));
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(bytes) / 4);
}

/// All ranks ran the last collective by the same schedule, decided in the same round.
Status compareSchedules(Communicator& communicator, const std::vector<std::uint64_t>& identities,
                        Observed& observed) {
  std::vector<std::uint64_t> low(identities.size()), high(identities.size());
  THESEUS_TRY(
      communicator.allReduce(identities.data(), low.data(), low.size(), {DataType::kUint64, ReduceOp::kMin}));
  THESEUS_TRY(communicator.allReduce(identities.data(), high.data(), high.size(),
                                     {DataType::kUint64, ReduceOp::kMax}));
  for (std::size_t i = 0; i < low.size(); ++i) observed.disagreements += low[i] != high[i];
  return {};
}

Status runStream(Communicator& communicator, const BenchSwapOptions& options, Observed& observed) {
  base::Random random(20261201);
  std::vector<std::byte> source, destination(kBytesMax);
  std::vector<std::uint64_t> identities;
  std::string before;
  for (int i = 0; i < options.collectives; ++i) {
    BenchCall call;
    call.count = randomElements(random);
    call.ranks = communicator.size();
    call.seed = static_cast<std::uint64_t>(i);
    // A different rank asks each time, so that proposals come from everywhere.
    const int step = i / options.every;
    if (i % options.every == 0 && step % communicator.size() == communicator.rank()) {
      THESEUS_TRY(communicator.swap(Collective::kAllReduce,
                                    kSchedules[static_cast<std::size_t>(step) % kSchedules.size()]));
    }
    fillSource(call, communicator.rank(), source);
    THESEUS_TRY(communicator.allReduce(source.data(), destination.data(), call.count, {}));
    const CallReport report = communicator.lastCall();
    observed.wrong += countWrong(call, communicator.rank(), destination.data());
    observed.changes += i > 0 && report.schedule != before;
    before = report.schedule;
    observed.seconds.push_back(report.seconds);
    if (report.limitWaitSeconds > 0) observed.limitWaits.push_back(report.limitWaitSeconds);
    identities.push_back(base::hash128(report.schedule).low ^ report.round);
    if (identities.size() == 100 || i + 1 == options.collectives) {
      THESEUS_TRY(compareSchedules(communicator, identities, observed));
      identities.clear();
    }
  }
  return {};
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(q * static_cast<double>(values.size())))];
}

}  // namespace

Result<int> benchSwapRank(const BenchSwapOptions& options, const CommunicatorOptions& communicatorOptions) {
  auto created = Communicator::create(communicatorOptions);
  if (!created) return fail(created.error());
  Communicator& communicator = **created;
  Observed observed;
  THESEUS_TRY(runStream(communicator, options, observed));
  std::array<double, 3> worst = {quantile(observed.seconds, 0.5) * 1e6,
                                 quantile(observed.limitWaits, 0.5) * 1e6,
                                 quantile(observed.limitWaits, 1.0) * 1e6};
  std::array<std::uint64_t, 2> sums = {observed.wrong, observed.limitWaits.size()};
  THESEUS_TRY(
      communicator.allReduce(worst.data(), worst.data(), worst.size(), {DataType::kFloat64, ReduceOp::kMax}));
  THESEUS_TRY(
      communicator.allReduce(sums.data(), sums.data(), sums.size(), {DataType::kUint64, ReduceOp::kSum}));
  const bool good = sums[0] == 0 && observed.disagreements == 0 && observed.changes > 0;
  if (communicator.rank() != 0) return good ? 0 : 1;
  fmt::print(
      "{} collectives on {} ranks over {}: {} changes of schedule, {} wrong elements, {} collectives on "
      "different schedules; median "
      "{:.0f} us; waits at a limit: {} (median {:.0f} us, longest {:.0f} us)\n",
      options.collectives, communicator.size(), communicatorOptions.transport, observed.changes, sums[0],
      observed.disagreements, worst[0], sums[1], worst[1], worst[2]);
  if (!options.jsonFile.empty()) {
    std::ofstream(options.jsonFile) << fmt::format(
        R"({{"ranks":{},"transport":"{}","collectives":{},"swaps":{},"wrong":{},"disagreements":{},)"
        R"("collective_us":{{"p50":{:.1f}}},)"
        R"("limit_waits":{},"stall_us":{{"p50":{:.1f},"max":{:.1f}}}}})"
        "\n",
        communicator.size(), communicatorOptions.transport, options.collectives, observed.changes, sums[0],
        observed.disagreements, worst[0], sums[1], worst[1], worst[2]);
  }
  return good ? 0 : 1;
}

}  // namespace theseus::cli
