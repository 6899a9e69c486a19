// Copies a rank's output line by line with [rank] in front. Owned by the supervisor, one thread.
#pragma once

#include <string>

#include "drivers/posix/descriptor.h"

namespace theseus::cli {

class TaggedOutput {
 public:
  /// Reads from `source` (non-blocking) and writes to the descriptor `destination`, which is borrowed.
  TaggedOutput(drivers::FileDescriptor source, int destination, int rank);

  int source() const { return source_.get(); }
  bool open() const { return source_.valid(); }
  /// Passes on what is there. At the end of the source the rest of a line goes out too.
  void pump();
  /// What is there and the rest of a line, then closes.
  void finish();

 private:
  void writeLines(bool all);

  drivers::FileDescriptor source_;
  int destination_;
  std::string tag_;
  std::string pending_;
};

}  // namespace theseus::cli
