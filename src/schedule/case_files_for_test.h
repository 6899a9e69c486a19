// Finds the real schedules that some tests read: $THESEUS_CASES, else shared/cases beside the source folder.
// Tests only. A test whose cases are absent must say so and skip.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace theseus::schedule::testing {

inline std::filesystem::path casesFolder() {
  if (const char* const set = std::getenv("THESEUS_CASES"); set != nullptr && *set != '\0') return set;
  return std::filesystem::path(THESEUS_SOURCE_DIR).parent_path() / "shared" / "cases";
}

/// Files of `folder` under the cases whose name ends in `extension`, sorted. Empty when the folder is absent.
inline std::vector<std::filesystem::path> caseFiles(const std::string& folder, const std::string& extension) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;  // absent folder: no files
  for (const auto& entry : std::filesystem::directory_iterator(casesFolder() / folder, ignored)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline std::string readFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace theseus::schedule::testing

#define THESEUS_SKIP_WITHOUT_CASES()                                                                    \
  if (!std::filesystem::exists(::theseus::schedule::testing::casesFolder())) {                          \
    GTEST_SKIP() << "SKIPPED, NOT TESTED: no cases at " << ::theseus::schedule::testing::casesFolder()  \
                 << "; set THESEUS_CASES to the folder with mscclpp/, mscclpp-vectors/ and msccl-xml/"; \
  }                                                                                                     \
  static_assert(true)
