#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace theseus::base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Configuration> parsed(const std::map<std::string, std::string, std::less<>>& values) {
  return configurationFrom([&values](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  });
}

std::string contentOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::filesystem::path kSource = THESEUS_SOURCE_DIR;

TEST(Configuration, HasDefaultsForAll) {
  EXPECT_EQ(parsed({}).value(), Configuration{});
  EXPECT_EQ(Configuration{}.port, 29500);
  EXPECT_TRUE(Configuration{}.control);
}

TEST(Configuration, ReadsEveryType) {
  const auto configuration = parsed({{"THESEUS_TRANSPORT", "tcp"},
                                     {"THESEUS_PORT", "1"},
                                     {"THESEUS_TIMEOUT", "2.5"},
                                     {"THESEUS_CTL", "off"},
                                     {"THESEUS_SECRET", "hush"},
                                     {"THESEUS_SCHEDULE", ""},
                                     {"HOME", "/"}});
  ASSERT_TRUE(configuration.has_value()) << configuration.error().message;
  EXPECT_EQ(configuration->transport, "tcp");
  EXPECT_EQ(configuration->port, 1);
  EXPECT_EQ(configuration->timeoutSeconds, 2.5);
  EXPECT_FALSE(configuration->ctl);
  EXPECT_EQ(configuration->secret, "hush");
  for (const char* on : {"1", "on", "true", "yes"}) EXPECT_TRUE(parsed({{"THESEUS_CTL", on}})->ctl);
  for (const char* off : {"0", "off", "false", "no"}) EXPECT_FALSE(parsed({{"THESEUS_CTL", off}})->ctl);
}

TEST(Configuration, RefusesWhatIsNotExactlyAValueAndSaysWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"THESEUS_PORT", ""},
      {"THESEUS_PORT", "0"},
      {"THESEUS_PORT", "65536"},
      {"THESEUS_PORT", "80 "},
      {"THESEUS_PORT", "0x50"},
      {"THESEUS_PORT", "80.5"},
      {"THESEUS_PORT", "1e3"},
      {"THESEUS_TIMEOUT", "nan"},
      {"THESEUS_TIMEOUT", "inf"},
      {"THESEUS_TIMEOUT", "-1"},
      {"THESEUS_TIMEOUT", "30s"},
      {"THESEUS_CTL", ""},
      {"THESEUS_CTL", "ON"},
      {"THESEUS_CTL", "2"},
      {"THESEUS_TRANSPORT", "TCP"},
      {"THESEUS_TRANSPORT", ""},
      {"THESEUS_LOG", "warning|error"},
      {"THESEUS_PORT", "99999999999999999999999"},
  };
  for (const auto& [name, value] : cases) {
    const auto configuration = parsed({{name, value}});
    ASSERT_FALSE(configuration.has_value()) << name << "=" << value;
    EXPECT_EQ(configuration.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(configuration.error().message, HasSubstr(std::string(name) + "=\"" + value + "\" must be: "));
  }
  EXPECT_THAT(parsed({{"THESEUS_TRANSPORT", "x"}}).error().message, HasSubstr("auto, loopback, shm, tcp"));
  EXPECT_THAT(parsed({{"THESEUS_PORT", "x"}}).error().message, HasSubstr("whole number from 1 to 65535"));
}

TEST(Configuration, IsPrintedWithoutSecrets) {
  const auto configuration = parsed({{"THESEUS_SECRET", "hush"}, {"THESEUS_PORT", "4000"}});
  const std::string text = describe(configuration.value());
  EXPECT_THAT(text, HasSubstr("THESEUS_SECRET=(set)\n"));
  EXPECT_THAT(text, HasSubstr("THESEUS_CTL_TOKEN=(empty)\n"));
  EXPECT_THAT(text, HasSubstr("THESEUS_PORT=4000\n"));
  EXPECT_THAT(text, HasSubstr("THESEUS_CTL=on  (default)\n"));
  EXPECT_THAT(text, Not(HasSubstr("hush")));
}

TEST(Configuration, PointsOutMisspeltNames) {
  const std::string names[] = {"THESEUS_TRANSPROT", "THESEUS_PORT", "PATH", "THESEUS_WHATEVER_THIS_IS"};
  EXPECT_THAT(misspelt(names),
              ElementsAre("THESEUS_TRANSPROT is no variable of Theseus; did you mean THESEUS_TRANSPORT?",
                          "THESEUS_WHATEVER_THIS_IS is no variable of Theseus"));
}

TEST(ConfigurationTable, DefaultsAreValuesThatTheParserTakes) {
  for (const Variable& variable : variables()) {
    const auto configuration = parsed({{std::string(variable.name), variable.defaultText}});
    ASSERT_TRUE(configuration.has_value()) << configuration.error().message;
    EXPECT_EQ(*configuration, Configuration{}) << variable.name;
    EXPECT_TRUE(variable.doc.ends_with('.')) << variable.name << ": say what it does, in sentences";
  }
}

TEST(ConfigurationTable, IsWhatTheDocumentationShows) {
  EXPECT_THAT(contentOf(kSource / "docs" / "configuration.md"), HasSubstr(variablesAsMarkdown()))
      << "put this into docs/configuration.md:\n"
      << variablesAsMarkdown();
}

/// Names in quotes in the sources: what the code really reads.
std::set<std::string> namesInSources() {
  // Only for tests and for a program's talk with its own children.
  const std::set<std::string> exempt = {"THESEUS_CASES", "THESEUS_DEMO_SECRET"};
  const std::regex quoted("\"(THESEUS_[A-Z0-9_]+)\"");
  std::set<std::string> names;
  for (const char* folder : {"src", "apps", "include"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource / folder)) {
      const std::string file = entry.path().filename().string();
      const bool source = file.ends_with(".cpp") || file.ends_with(".h");
      if (!source || file.ends_with("_test.cpp") || file.starts_with("config.")) continue;
      const std::string text = contentOf(entry.path());
      for (std::sregex_iterator match(text.begin(), text.end(), quoted), end; match != end; ++match) {
        if (!exempt.contains((*match)[1])) names.insert((*match)[1]);
      }
    }
  }
  return names;
}

TEST(ConfigurationTable, HasExactlyTheVariablesThatTheSourcesRead) {
  std::set<std::string> table;
  for (const Variable& variable : variables())
    EXPECT_TRUE(table.emplace(variable.name).second) << variable.name << " twice";
  EXPECT_EQ(namesInSources(), table);
}

}  // namespace
}  // namespace theseus::base
