// Any bytes into the plan JSON reader.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "check_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto plan = theseus::schedule::readJson({reinterpret_cast<const char*>(data), size});
  if (plan) theseus::schedule::fuzzing::checkPlan(*plan);
  return 0;
}
