// An open file descriptor, closed with its owner, and the Error of a failed system call. Any thread; one
// owner.
#pragma once

#include <string>
#include <utility>

#include "theseus/result.h"

namespace theseus::drivers {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int value) : value_(value) {}
  FileDescriptor(FileDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      value_ = std::exchange(other.value_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return value_; }
  bool valid() const { return value_ >= 0; }
  void close();

 private:
  int value_ = -1;
};

/// "WHAT: text of `code`" as kIo; `code` is an errno value.
tl::unexpected<Error> failSystem(const std::string& what, int code, ErrorCode kind = ErrorCode::kIo);

/// Cores that this process may run on, at least 1.
int availableCores();

}  // namespace theseus::drivers
