// Any bytes into the MSCCL XML reader and its lowering.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "check_plan.h"
#include "schedule/xml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto plan = theseus::schedule::readXml({reinterpret_cast<const char*>(data), size});
  if (plan) theseus::schedule::fuzzing::checkPlan(*plan);
  return 0;
}
