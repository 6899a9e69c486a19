// `theseus run -n N -- PROGRAM ARGS...`: the ranks of a job on this host.
#include <CLI/CLI.hpp>
#include <memory>

#include "run_supervisor.h"
#include "verbs.h"

namespace theseus::cli {

void addRun(CLI::App& app, int& exitCode, std::vector<std::string> program) {
  auto options = std::make_shared<RunOptions>();
  options->command = std::move(program);
  auto grace = std::make_shared<double>(5.0);
  CLI::App* verb = app.add_subcommand(
      "run", "start N ranks of a program on this host: theseus run -n N -- PROGRAM ARGS...");
  verb->add_option("-n,--ranks", options->ranks, "number of ranks")->required()->check(CLI::Range(1, 1024));
  verb->add_option("--transport", options->transport, "THESEUS_TRANSPORT for the ranks")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}));
  verb->add_option("--port", options->port, "MASTER_PORT; default: one that is free")
      ->check(CLI::Range(1, 65535));
  verb->add_option("--job", options->job, "name of the job for `theseus ctl`; default: run-PID");
  verb->add_flag("--tag", options->tag, "begin each line of output with [rank]");
  verb->add_option("--grace", *grace, "seconds between SIGTERM and SIGKILL when the job is stopped")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  verb->callback([options, grace, &exitCode] {
    if (options->command.empty())
      throw CLI::ValidationError("PROGRAM", "is missing: theseus run -n N -- PROGRAM ARGS...");
    options->grace = std::chrono::milliseconds(static_cast<long long>(*grace * 1000));
    exitCode = runJob(*options);
  });
}

}  // namespace theseus::cli
