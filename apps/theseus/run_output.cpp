#include "run_output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

namespace theseus::cli {
namespace {

constexpr std::size_t kLineBytesMax = 64 * 1024;  // a longer line goes out in pieces
constexpr int kReadsPerPump = 16;

/// Gives up where nobody reads any more; output is lost then as it would be without the launcher.
void writeAll(int destination, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(destination, text.data() + written, text.size() - written);
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd entry{destination, POLLOUT, 0};
      (void)::poll(&entry, 1, 1000);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

TaggedOutput::TaggedOutput(drivers::FileDescriptor source, int destination, int rank)
    : source_(std::move(source)), destination_(destination), tag_(fmt::format("[{}] ", rank)) {}

void TaggedOutput::writeLines(bool all) {
  std::string out;
  std::size_t begin = 0;
  while (begin < pending_.size()) {
    const std::size_t end = pending_.find('\n', begin);
    const bool whole = end != std::string::npos;
    if (!whole && !all && pending_.size() - begin < kLineBytesMax) break;
    const std::size_t length = (whole ? end : pending_.size()) - begin;
    out += tag_;
    out.append(pending_, begin, length);
    out += '\n';
    begin += length + (whole ? 1 : 0);
  }
  pending_.erase(0, begin);
  if (!out.empty()) writeAll(destination_, out);
}

void TaggedOutput::pump() {
  char chunk[16 * 1024];
  for (int reads = 0; reads < kReadsPerPump && open(); ++reads) {
    const ssize_t count = ::read(source_.get(), chunk, sizeof(chunk));
    if (count > 0) {
      pending_.append(chunk, static_cast<std::size_t>(count));
      writeLines(false);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    source_.close();
    writeLines(true);
  }
}

void TaggedOutput::finish() {
  pump();
  source_.close();
  writeLines(true);
}

}  // namespace theseus::cli
