#include "runtime/environment.h"

#include <gtest/gtest.h>

#include <map>

namespace theseus::runtime {
namespace {

using Variables = std::map<std::string, std::string>;

Result<CommunicatorOptions> read(const Variables& variables) {
  return optionsFrom([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables kTorchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4000"}};

TEST(Environment, TorchrunAndOurOwn) {
  auto options = read(with(kTorchrun, {{"THESEUS_SECRET", "s"},
                                       {"THESEUS_TRANSPORT", "tcp"},
                                       {"THESEUS_TIMEOUT", "2.5"},
                                       {"THESEUS_CONTROL", "off"},
                                       {"THESEUS_CTL", "0"},
                                       {"THESEUS_SCHEDULE", "ring"},
                                       {"THESEUS_BIND_ADDRESS", "10.0.0.1"},
                                       {"THESEUS_LINK_BYTES_PER_SECOND", "1e8"}}));
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->rank, 3);
  EXPECT_EQ(options->size, 8);
  EXPECT_EQ(options->masterAddress, "node1");
  EXPECT_EQ(options->masterPort, 4000);
  EXPECT_EQ(options->secret, "s");
  EXPECT_EQ(options->transport, "tcp");
  EXPECT_EQ(options->timeout, std::chrono::milliseconds(2500));
  EXPECT_FALSE(options->control);
  EXPECT_FALSE(options->ctl);
  EXPECT_EQ(options->schedule, "ring");
  EXPECT_EQ(options->bindAddress, "10.0.0.1");
  EXPECT_EQ(options->emulatedLinkBytesPerSecond, 1e8);
}

TEST(Environment, TorchrunsOwnStoreKeepsItsPort) {
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}}))->masterPort, 4001);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}, {"MASTER_PORT", "65535"}}))->masterPort,
            65534);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}, {"THESEUS_PORT", "77"}}))->masterPort, 77);
}

TEST(Environment, OpenMpi) {
  const Variables one{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  auto options = read(one);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->rank, 1);
  EXPECT_EQ(options->masterAddress, "127.0.0.1");
  auto spread = read(with(one, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  ASSERT_FALSE(spread);
  EXPECT_NE(spread.error().message.find("MASTER_ADDR"), std::string::npos);
  EXPECT_TRUE(read(with(one, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "h"}})));
}

TEST(Environment, Slurm) {
  const Variables step{{"SLURM_PROCID", "5"},    {"SLURM_STEP_NUM_TASKS", "6"},
                       {"SLURM_NTASKS", "99"},   {"SLURM_STEP_NODELIST", "gpu[07-09]"},
                       {"SLURM_JOB_ID", "1000"}, {"SLURM_STEP_ID", "1"}};
  auto options = read(step);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->rank, 5);
  EXPECT_EQ(options->size, 6);
  EXPECT_EQ(options->masterAddress, "gpu07");
  auto next = read(with(step, {{"SLURM_STEP_ID", "2"}}));
  EXPECT_NE(options->masterPort, next->masterPort);
  // torchrun inside a step numbers the processes itself.
  EXPECT_EQ(read(with(step, kTorchrun))->rank, 3);
}

TEST(Environment, SlurmHosts) {
  EXPECT_EQ(firstSlurmHost("a"), "a");
  EXPECT_EQ(firstSlurmHost("a,b"), "a");
  EXPECT_EQ(firstSlurmHost("n[7-9,12],m3"), "n7");
  EXPECT_EQ(firstSlurmHost("n[12,14]"), "n12");
  EXPECT_EQ(firstSlurmHost("r[1-2]-blade,x"), "r1-blade");
  EXPECT_EQ(firstSlurmHost(""), "");
  EXPECT_EQ(firstSlurmHost("n["), "n");
}

TEST(Environment, EveryBadVariableIsNamed) {
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"RANK", "8"},
                                                        {"RANK", "-1"},
                                                        {"RANK", "two"},
                                                        {"RANK", ""},
                                                        {"RANK", "3 "},
                                                        {"WORLD_SIZE", "0"},
                                                        {"WORLD_SIZE", "1e3"},
                                                        {"MASTER_PORT", "0"},
                                                        {"MASTER_PORT", "65536"},
                                                        {"THESEUS_PORT", "x"},
                                                        {"THESEUS_TIMEOUT", "0"},
                                                        {"THESEUS_TIMEOUT", "nan"},
                                                        {"THESEUS_TIMEOUT", "5s"},
                                                        {"THESEUS_CONTROL", "maybe"},
                                                        {"THESEUS_CTL", ""},
                                                        {"THESEUS_TRANSPORT", "pigeon"},
                                                        {"THESEUS_LINK_BYTES_PER_SECOND", "-1"}}) {
    auto options = read(with(kTorchrun, {{name, value}}));
    ASSERT_FALSE(options) << name << "=" << value;
    EXPECT_EQ(options.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(options.error().message.find(name), std::string::npos) << options.error().message;
  }
}

TEST(Environment, NothingOrHalfIsAnError) {
  ASSERT_FALSE(read({}));
  EXPECT_NE(read({}).error().message.find("theseus run"), std::string::npos);
  EXPECT_NE(read({{"RANK", "0"}}).error().message.find("WORLD_SIZE is not set"), std::string::npos);
  EXPECT_NE(read({{"WORLD_SIZE", "1"}}).error().message.find("RANK is not set"), std::string::npos);
}

}  // namespace
}  // namespace theseus::runtime
