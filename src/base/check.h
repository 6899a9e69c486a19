// THESEUS_CHECK: our own mistakes, checked in release builds too; operating errors are Result<T>.
#pragma once

namespace theseus::base {

/// Prints what failed and where, then aborts the process.
[[noreturn]] void checkFailed(const char* expression, const char* message, const char* file, int line);

}  // namespace theseus::base

#define THESEUS_CHECK(expression, message)                                    \
  do {                                                                        \
    if (!(expression)) [[unlikely]]                                           \
      ::theseus::base::checkFailed(#expression, message, __FILE__, __LINE__); \
  } while (false)

/// THESEUS_TRY(status-or-result): returns the error from the enclosing function, if there is one.
#define THESEUS_TRY(expression)                                    \
  do {                                                             \
    if (auto theseusTryResult = (expression); !theseusTryResult)   \
      return ::theseus::fail(std::move(theseusTryResult.error())); \
  } while (false)
