// One function a verb: adds its subcommand to the command line; main() runs the chosen one. Exit codes: 0
// done, 1 the work failed or found something, 2 wrong usage.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace theseus::cli {

/// Each sets `exitCode` when its subcommand was chosen and has run.
void addRun(CLI::App& app, int& exitCode, std::vector<std::string> program);  // run -n N -- PROGRAM
void addPlan(CLI::App& app, int& exitCode);                                   // plan make|verify|show|convert
void addCtl(CLI::App& app, int& exitCode);    // ctl status|attr|set|sched|swap|explain
void addBench(CLI::App& app, int& exitCode);  // bench COLLECTIVE
void addSim(CLI::App& app, int& exitCode);    // sim
void addDemo(CLI::App& app, int& exitCode);   // demo failslow

}  // namespace theseus::cli
