#include "discovery/discovery.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace theseus::discovery {
namespace {

/// Words of the text form hold no spaces.
std::string word(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '_');
  return text.empty() ? "unknown" : text;
}

std::string linkTarget(const char* path) {
  char target[128] = {};
  const ssize_t length = readlink(path, target, sizeof target - 1);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : std::string();
}

}  // namespace

topology::RankPlace discoverPlace() {
  topology::RankPlace place;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  place.host = word(host);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  place.memoryDomain = word(boot + linkTarget("/proc/self/ns/net"));
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) place.cores = std::max(1, CPU_COUNT(&cores));
  return place;
}

}  // namespace theseus::discovery
