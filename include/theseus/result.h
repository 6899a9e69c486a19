// Result<T>: how every operating error travels in Theseus; no exception crosses the API.
// Plain values, owned by whoever holds them; safe to copy between threads.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace theseus {

enum class ErrorCode {
  kInvalidArgument,  // the caller passed something that can never work
  kInvalidSchedule,  // a schedule was refused by a reader or by the verifier
  kMismatch,         // ranks called different things, or ran different tables
  kTimeout,          // a bounded wait ran out; the message says for whom or what
  kAborted,          // another rank failed first; the message carries its reason
  kTransport,        // a connection broke
  kIo,               // a file or a system call failed
  kUnsupported,      // valid, but not something this build or this transport can do
  kOutOfMemory,
  kNotFound,
};

/// Stable lower-case name, e.g. "invalid_argument".
const char* errorCodeName(ErrorCode code);

/// What went wrong, where, and what to do about it.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
};

/// A value or an Error. [[nodiscard]] because a dropped error is a bug.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Status = Result<void>;

/// `return fail(ErrorCode::kIo, "cannot open /x: no such file");`
inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

/// Passes an error on: `if (!r) return fail(r.error());`
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace theseus
