// theseus demo failslow: one rank's link drops to half while a stream of allReduce runs; the runtime swaps
// its schedule, and back.
#include <CLI/CLI.hpp>

#include <memory>

#include "demo_failslow.h"
#include "demo_worker.h"
#include "verbs.h"

namespace theseus::cli {
namespace {

void addFailSlow(CLI::App& demo, int& exitCode) {
  auto options = std::make_shared<demo::FailSlowOptions>();
  auto counts = std::make_shared<std::vector<int>>();
  CLI::App* failslow =
      demo.add_subcommand("failslow", "a link drops to half its rate and recovers; the schedule follows");
  demo::ScenarioOptions& scenario = options->scenario;
  failslow->add_option("--ranks", scenario.ranks, "ranks, each a process in a network namespace of its own")
      ->check(CLI::Range(3, 64));
  failslow->add_option("--bytes", scenario.bytes, "bytes of each float32 allReduce")
      ->check(CLI::Range(4096, 1 << 30));
  failslow->add_option("--json", options->jsonFile, "write the figures here");
  failslow->add_option("--vs", options->rival, "run a rival through the same links in the same run")
      ->check(CLI::IsMember({"gloo"}));
  failslow->add_flag("--emulate", options->emulate,
                     "no namespaces: loopback, with the links emulated in the senders; needs no root");
  failslow->add_option("--rate-mbit", scenario.megabitsPerSecond, "rate of a healthy link")
      ->check(CLI::Range(1.0, 40000.0));
  failslow->add_option("--slow-mbit", scenario.slowMegabitsPerSecond,
                       "rate of the degraded link (default: half)");
  failslow->add_option("--slow-rank", scenario.slowRank, "whose link degrades");
  failslow
      ->add_option("--phase-collectives", *counts,
                   "collectives in the phases healthy, degraded-after, recovered")
      ->expected(1, 3);
  failslow
      ->add_option("--patience", scenario.patienceCollectives, "collectives within which a swap must come")
      ->check(CLI::Range(1, 10000));
  failslow->add_flag("--plain", options->plain, "plain lines even on a terminal");
  failslow->add_option("--worker-program", options->workerProgram, "")->group("");
  failslow->callback([options, counts, failslow, &exitCode] {
    demo::ScenarioOptions& chosen = options->scenario;
    if (failslow->count("--slow-mbit") == 0) chosen.slowMegabitsPerSecond = chosen.megabitsPerSecond / 2;
    int* const phases[] = {&chosen.healthyCollectives, &chosen.degradedCollectives,
                           &chosen.recoveredCollectives};
    for (std::size_t i = 0; i < 3 && !counts->empty(); ++i)
      *phases[i] = (*counts)[std::min(i, counts->size() - 1)];
    exitCode = demo::runFailSlowDemo(*options);
  });
}

/// Started by the parent alone; hidden from the help.
void addWorker(CLI::App& demo, int& exitCode) {
  auto options = std::make_shared<demo::WorkerOptions>();
  CLI::App* worker = demo.add_subcommand("worker", "")->group("");
  worker->add_option("--rank", options->rank)->required();
  worker->add_option("--size", options->size)->required();
  worker->add_option("--bytes", options->bytes)->required();
  worker->add_option("--master-address", options->masterAddress);
  worker->add_option("--master-port", options->masterPort);
  worker->add_option("--bind-address", options->bindAddress);
  worker->add_option("--emulate-rate", options->emulatedLinkBytesPerSecond);
  worker->add_option("--schedule", options->schedule);
  worker->callback([options, &exitCode] { exitCode = demo::runWorker(*options); });
}

}  // namespace

void addDemo(CLI::App& app, int& exitCode) {
  CLI::App* demo = app.add_subcommand("demo", "see it work: schedules swapped while the job runs");
  demo->require_subcommand(1);
  addFailSlow(*demo, exitCode);
  addWorker(*demo, exitCode);
}

}  // namespace theseus::cli
