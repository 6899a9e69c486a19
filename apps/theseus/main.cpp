// The `theseus` command line: one verb a file.
#include <CLI/CLI.hpp>

#include "verbs.h"

int main(int argc, char** argv) {
  CLI::App app{"Theseus: collectives whose schedules are replaced while the job runs", "theseus"};
  app.require_subcommand(1);
  int exitCode = 0;
  for (auto add : {theseus::cli::addRun, theseus::cli::addPlan, theseus::cli::addCtl, theseus::cli::addBench,
                   theseus::cli::addSim, theseus::cli::addDemo}) {
    add(app, exitCode);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exitCode;
}
