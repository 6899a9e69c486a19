// The `theseus` command line: one verb a file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "verbs.h"

int main(int argc, char** argv) {
  CLI::App app{"Theseus: collectives whose schedules are replaced while the job runs", "theseus"};
  app.require_subcommand(1);
  int exitCode = 0;
  // What follows `--` is the program of `run`: CLI11 must not see it, it would take words such as [a,b]
  // apart.
  char** const end = argv + argc;
  char** const dashes =
      std::find_if(argv, end, [](const char* word) { return std::strcmp(word, "--") == 0; });
  theseus::cli::addRun(app, exitCode, {dashes == end ? end : dashes + 1, end});
  for (auto add : {theseus::cli::addPlan, theseus::cli::addCtl, theseus::cli::addBench, theseus::cli::addSim,
                   theseus::cli::addDemo}) {
    add(app, exitCode);
  }
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exitCode;
}
