// The fast path stays short: from DataPlane::run to Channel::put the stack holds three of our classes and
// nothing of the slow path. Symbols come from the dynamic table, so the program is linked with -rdynamic.
#include <cxxabi.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <string>

#include "runtime/data_plane.h"
#include "synth/generators.h"

namespace theseus::runtime {
namespace {

/// Classes "theseus::<module>::<Class>" on the stack below the caller.
std::set<std::string> classesOnStack() {
  void* frames[64];
  const int depth = backtrace(frames, 64);
  char** symbols = backtrace_symbols(frames, depth);
  std::set<std::string> classes;
  for (int i = 0; i < depth; ++i) {
    std::cmatch mangled;
    if (!std::regex_search(symbols[i], mangled, std::regex(R"(\((_Z\w+))"))) continue;
    int status = 0;
    char* name = abi::__cxa_demangle(mangled.str(1).c_str(), nullptr, nullptr, &status);
    std::cmatch found;
    if (status == 0 &&
        std::regex_search(static_cast<const char*>(name), found, std::regex(R"(^theseus::(\w+)::(\w+)::)"))) {
      classes.insert(found.str(1) + "::" + found.str(2));
    }
    std::free(name);
  }
  std::free(symbols);
  return classes;
}

/// Takes what it is given and remembers who stood on the stack. Delivers nothing.
class RecordingChannel final : public transport::Channel {
 public:
  Result<bool> put(const transport::SegmentHeader&, const std::byte*) override {
    if (classes.empty()) classes = classesOnStack();
    ++accepted_;
    ++completed_;
    return true;
  }
  std::set<std::string> classes;
};

class RecordingEndpoint final : public transport::Endpoint {
 public:
  explicit RecordingEndpoint(RecordingChannel& channel) : channel_(channel) {}
  const transport::Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return ""; }
  Status setPeers(std::vector<std::string>) override { return {}; }
  Result<transport::Channel*> connect(Rank) override { return &channel_; }
  Result<bool> progress(transport::InboundHandler&) override {
    return fail(ErrorCode::kAborted, "nothing ever arrives");
  }
  void resume() override {}
  void wait(base::Nanoseconds) override {}
  void wake() override {}
  transport::LinkSample takeLinkSample() override { return {}; }
  Status emulateLinkRate(double) override { return {}; }

 private:
  RecordingChannel& channel_;
  transport::Capabilities capabilities_;
};

TEST(HopBudget, ThreeClassesFromRunToPut) {
  auto generated = synth::generate({"ring", Collective::kAllReduce, 2, {}});
  ASSERT_TRUE(generated.has_value()) << generated.error().message;
  auto schedule = std::make_shared<const schedule::Schedule>(std::move(*generated));
  resource::ScheduleNode node("ring", schedule, 0, true);
  RecordingChannel channel;
  DataPlane plane({0, 2, std::chrono::seconds(1)}, std::make_unique<RecordingEndpoint>(channel));
  std::vector<float> data(1024), result(1024);
  auto done = plane.run(
      {Collective::kAllReduce, data.data(), result.data(), 1024, DataType::kFloat32, ReduceOp::kSum, 0}, 0,
      node);
  EXPECT_FALSE(done.has_value());
  channel.classes.erase("runtime::(anonymous namespace)");
  std::string shown;
  for (const auto& name : channel.classes) shown += name + " ";
  EXPECT_TRUE(channel.classes.contains("exec::BlockRunner"))
      << shown << "(is the program linked with -rdynamic?)";
  for (const char* slow : {"policy", "synth", "control", "schedule"}) {
    for (const auto& name : channel.classes) EXPECT_NE(name.substr(0, name.find(':')), slow) << shown;
  }
  EXPECT_LE(channel.classes.size(), 3u) << shown;
}

}  // namespace
}  // namespace theseus::runtime
