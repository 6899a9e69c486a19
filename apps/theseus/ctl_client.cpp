#include "ctl_client.h"

#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ctl_view.h"
#include "runtime/control_server.h"

namespace theseus::cli {
namespace {

std::vector<std::string> listFolder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(path, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// "3" of "3.sock" and of "3.1.sock" (the second communicator of a rank), nothing of other files.
std::optional<std::pair<int, int>> parseSocketName(const std::string& name) {
  constexpr std::string_view kEnding = ".sock";
  if (name.size() <= kEnding.size() ||
      name.compare(name.size() - kEnding.size(), kEnding.size(), kEnding) != 0)
    return std::nullopt;
  const char* end = name.data() + name.size() - kEnding.size();
  int rank = 0, number = 0;
  const auto first = std::from_chars(name.data(), end, rank);
  if (first.ec != std::errc() || rank < 0) return std::nullopt;
  if (first.ptr == end) return std::pair{rank, 0};
  if (*first.ptr != '.') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, number);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  return std::pair{rank, number};
}

using Found = std::map<std::pair<int, int>, ControlTarget>;  // by rank and number

Found liveSockets(const std::string& root, const std::string& job) {
  Found found;
  const std::string folder = root + "/" + job;
  for (const std::string& name : listFolder(folder)) {
    const auto parsed = parseSocketName(name);
    const std::string path = folder + "/" + name;
    if (!parsed) continue;
    const runtime::SocketState state = runtime::probeSocket(path);
    if (state == runtime::SocketState::kDead) ::unlink(path.c_str());
    if (state == runtime::SocketState::kAlive)
      found[*parsed] = ControlTarget{path, "", 0, "", job, parsed->first};
  }
  if (found.empty()) ::rmdir(folder.c_str());
  return found;
}

std::string describe(const ControlTarget& target) {
  if (target.socketPath.empty()) return fmt::format("{}:{}", target.host, target.port);
  return fmt::format("rank {} of job {} ({})", target.rank, target.job, target.socketPath);
}

}  // namespace

Result<std::vector<ControlTarget>> findControlTargets(const ControlSelection& selection) {
  std::map<std::string, Found> jobs;
  const std::vector<std::string> roots = runtime::controlRoots();
  for (const std::string& root : roots) {
    for (const std::string& job : listFolder(root)) {
      if (selection.job && job != runtime::fileNameOf(*selection.job)) continue;
      Found found = liveSockets(root, job);
      jobs[job].merge(found);
      if (jobs[job].empty()) jobs.erase(job);
    }
    ::rmdir(root.c_str());  // goes only when it is empty
  }
  const std::string where = fmt::format("{}", fmt::join(roots, " or "));
  if (jobs.empty()) {
    return fail(ErrorCode::kNotFound,
                selection.job
                    ? fmt::format("no rank of job {} runs on this host for this user (no live socket in {})",
                                  *selection.job, where)
                    : fmt::format("no job runs on this host for this user (no live socket in {})", where));
  }
  if (jobs.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [name, found] : jobs) names.push_back(name);
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} jobs run here: {}; choose one with --job",
                                                         names.size(), fmt::join(names, ", ")));
  }
  std::vector<ControlTarget> targets;
  std::set<int> ranks;
  for (const auto& [key, target] : jobs.begin()->second) {
    ranks.insert(key.first);
    if (!selection.rank || *selection.rank == key.first) targets.push_back(target);
  }
  if (!targets.empty()) return targets;
  return fail(ErrorCode::kNotFound,
              fmt::format("rank {} of job {} does not run on this host; here are: {}",
                          selection.rank.value_or(-1), jobs.begin()->first, fmt::join(ranks, ", ")));
}

Result<std::string> askControl(const ControlTarget& target, const ControlRequest& request) {
  const bool local = !target.socketPath.empty();
  httplib::ClientImpl client(local ? target.socketPath : target.host, local ? 80 : target.port);
  if (local) client.set_address_family(AF_UNIX);
  client.set_connection_timeout(2);
  client.set_read_timeout(request.timeout);
  client.set_write_timeout(2);
  httplib::Headers headers;
  // A file's path makes no sense as a Host, and some paths no valid one.
  if (local) headers.emplace("Host", "localhost");
  if (!target.token.empty()) headers.emplace("Authorization", "Bearer " + target.token);
  httplib::Params parameters;
  for (const auto& [name, value] : request.parameters) parameters.emplace(name, value);
  httplib::Result result = !request.write ? client.Get(request.path, parameters, headers)
                           : request.body ? client.Post(request.path, headers, *request.body, "text/plain")
                                          : client.Post(request.path, headers, parameters);
  if (!result) {
    const httplib::Error error = result.error();
    const bool connecting = error == httplib::Error::Connection || error == httplib::Error::ConnectionTimeout;
    return fail(connecting ? ErrorCode::kTransport : ErrorCode::kTimeout,
                fmt::format("{} {}; is the process stopped or ending?", describe(target),
                            connecting ? "cannot be reached"
                                       : fmt::format("did not answer within {:g} s",
                                                     static_cast<double>(request.timeout.count()) / 1000)));
  }
  if (result->status != 200) {
    const std::string why = errorIn(result->body).value_or(fmt::format("HTTP status {}", result->status));
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", describe(target), why));
  }
  return result->body;
}

}  // namespace theseus::cli
