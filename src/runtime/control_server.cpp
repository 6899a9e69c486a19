#include "runtime/control_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"
#include "drivers/posix/descriptor.h"
#include "runtime/local_job.h"

namespace theseus::runtime {
namespace {

/// Makes a folder that only its owner can enter, or checks that it is one: /tmp belongs to everybody.
Status ensurePrivateFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                fmt::format("cannot create the folder {}: {}", path, std::strerror(errno)));
  }
  struct stat entry{};
  if (::lstat(path.c_str(), &entry) != 0) {
    return fail(ErrorCode::kNotFound,
                fmt::format("the folder {} is gone again: {}", path, std::strerror(errno)));
  }
  if (!S_ISDIR(entry.st_mode) || entry.st_uid != ::geteuid()) {
    return fail(ErrorCode::kIo,
                fmt::format("{} is not a folder of this user; remove it or set XDG_RUNTIME_DIR", path));
  }
  if ((entry.st_mode & 077) != 0 && ::chmod(path.c_str(), 0700) != 0) {
    return fail(ErrorCode::kIo, fmt::format("cannot make {} private: {}", path, std::strerror(errno)));
  }
  return {};
}

bool usableFolder(const char* path) {
  struct stat entry{};
  return path != nullptr && path[0] == '/' && ::stat(path, &entry) == 0 && S_ISDIR(entry.st_mode) &&
         ::access(path, W_OK | X_OK) == 0;
}

}  // namespace

std::string fileNameOf(const std::string& job) {
  constexpr std::size_t kLengthMax = 40;  // the path of a unix socket has 107 bytes
  std::string name;
  for (const char c : job) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    name.push_back(plain ? c : '_');
  }
  if (name.empty() || name[0] == '.') name.insert(name.begin(), '_');
  if (name.size() > kLengthMax)
    name = name.substr(0, kLengthMax - 9) + "-" + base::toHex(base::hash128(job)).substr(0, 8);
  return name;
}

std::string jobName(const CommunicatorOptions& options) {
  if (options.local) return fileNameOf(options.local->name());
  const char* given = std::getenv("THESEUS_JOB");
  if (given != nullptr && given[0] != '\0') return fileNameOf(given);
  return fileNameOf(fmt::format("{}-{}", options.masterAddress, options.masterPort));
}

std::vector<std::string> controlRoots() {
  const std::string own = fmt::format("theseus-{}", ::geteuid());
  std::vector<std::string> roots;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); usableFolder(runtime))
    roots.push_back(fmt::format("{}/{}", runtime, own));
  roots.push_back("/tmp/" + own);
  return roots;
}

SocketState probeSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return SocketState::kGone;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const drivers::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SocketState::kAlive;  // unknown: leave it alone
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return SocketState::kAlive;
  if (errno == ECONNREFUSED) return SocketState::kDead;
  return errno == ENOENT ? SocketState::kGone
                         : SocketState::kAlive;  // EAGAIN: its queue is full, so it lives
}

void removeDeadSockets(const std::string& job) {
  for (const std::string& root : controlRoots()) {
    const std::string folder = root + "/" + fileNameOf(job);
    std::error_code problem;  // a folder that is not there needs no cleaning
    for (std::filesystem::directory_iterator entry(folder, problem), end; !problem && entry != end;
         entry.increment(problem)) {
      const std::string path = entry->path().string();
      if (probeSocket(path) == SocketState::kDead) ::unlink(path.c_str());
    }
    ::rmdir(folder.c_str());
    ::rmdir(root.c_str());
  }
}

Result<SocketPlace> SocketPlace::claim(const ControlServerOptions& options) {
  constexpr int kCommunicatorsMax = 64;  // of one rank at the same time
  constexpr int kTries = 8;              // another job may just be removing the folder that we need
  SocketPlace place;
  place.root_ = options.root.empty() ? controlRoots().front() : options.root;
  place.folder_ = place.root_ + "/" + fileNameOf(options.job);
  Status folders;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    folders = ensurePrivateFolder(place.root_);
    if (folders) folders = ensurePrivateFolder(place.folder_);
    if (folders || folders.error().code != ErrorCode::kNotFound) break;
  }
  if (!folders) return fail(folders.error());
  for (int number = 0; number < kCommunicatorsMax; ++number) {
    place.path_ = fmt::format("{}/{}{}.sock", place.folder_, options.rank,
                              number == 0 ? "" : fmt::format(".{}", number));
    place.temporary_ = fmt::format("{}/.{}.{}.{}", place.folder_, options.rank, number, ::getpid());
    if (place.temporary_.size() >= sizeof(sockaddr_un::sun_path)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the path {} is too long for a unix socket; set XDG_RUNTIME_DIR to a shorter folder",
                      place.temporary_));
    }
    const SocketState state = probeSocket(place.path_);
    if (state == SocketState::kAlive) continue;  // another communicator of this rank
    if (state == SocketState::kDead) ::unlink(place.path_.c_str());
    ::unlink(place.temporary_.c_str());
    return place;
  }
  return fail(ErrorCode::kIo,
              fmt::format("all socket names of rank {} in {} are in use", options.rank, place.folder_));
}

SocketPlace::SocketPlace(SocketPlace&& other) noexcept
    : folder_(std::move(other.folder_)),
      root_(std::move(other.root_)),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      published_(other.published_),
      owned_(std::exchange(other.owned_, false)) {}

Status SocketPlace::publish() {
  if (::chmod(temporary_.c_str(), 0600) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return fail(ErrorCode::kIo, fmt::format("cannot publish the socket {}: {}", path_, std::strerror(errno)));
  }
  published_ = true;
  return {};
}

SocketPlace::~SocketPlace() {
  if (!owned_ || folder_.empty()) return;
  ::unlink(published_ ? path_.c_str() : temporary_.c_str());
  // Only empty folders go; those of other ranks and jobs stay.
  ::rmdir(folder_.c_str());
  ::rmdir(root_.c_str());
}

#ifndef THESEUS_HTTP  // otherwise in control_server_http.cpp
Result<std::unique_ptr<ControlServer>> startControlServer(ControlInterface&, const ControlServerOptions&) {
  return fail(ErrorCode::kUnsupported, "this build has no HTTP library: no `theseus ctl`");
}
ControlServerFactory controlServerFactory() { return nullptr; }
#endif

}  // namespace theseus::runtime
