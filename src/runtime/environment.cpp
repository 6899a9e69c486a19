#include "runtime/environment.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/check.h"

namespace theseus::runtime {
namespace {

constexpr int kPortDefault = 29500;

template <class Number>
Result<Number> parseNumber(const char* name, const std::string& text, Number low, Number high) {
  Number value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  // The negated comparison refuses NaN too.
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      !(value >= low && value <= high)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}=\"{}\" is not a number between {} and {}", name, text, low, high));
  }
  return value;
}

Result<bool> parseSwitch(const char* name, const std::string& text) {
  for (const char* on : {"1", "on", "true", "yes"}) {
    if (text == on) return true;
  }
  for (const char* off : {"0", "off", "false", "no"}) {
    if (text == off) return false;
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}=\"{}\" is neither on nor off", name, text));
}

/// Reads variables into fields; the first problem is kept and ends the reading.
class Reader {
 public:
  explicit Reader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const char* name) const { return lookup_(name); }

  template <class Number>
  bool number(const char* name, Number& into, Number low, Number high) {
    const auto value = lookup_(name);
    if (!value || problem_) return false;
    auto parsed = parseNumber<Number>(name, *value, low, high);
    if (!parsed) {
      problem_ = parsed.error();
      return false;
    }
    into = *parsed;
    return true;
  }

  void flag(const char* name, bool& into) {
    const auto value = lookup_(name);
    if (!value || problem_) return;
    auto parsed = parseSwitch(name, *value);
    if (!parsed) {
      problem_ = parsed.error();
    } else {
      into = *parsed;
    }
  }

  void copy(const char* name, std::string& into) {
    if (auto value = lookup_(name)) into = std::move(*value);
  }

  void refuse(std::string message) {
    if (!problem_) problem_ = Error{ErrorCode::kInvalidArgument, std::move(message)};
  }

  Status status() const { return problem_ ? Status(fail(*problem_)) : Status(); }

 private:
  const EnvironmentLookup& lookup_;
  std::optional<Error> problem_;
};

/// The two variables with which a launcher numbers its processes.
struct Numbering {
  const char* rank;
  const char* size;
};

std::optional<Numbering> findNumbering(const Reader& reader) {
  // RANK first: torchrun inside a Slurm step or under mpirun numbers the processes itself.
  // SLURM_STEP_NUM_TASKS rather than SLURM_NTASKS: a program that a batch script starts without srun is
  // alone, whatever the job has asked for.
  for (const Numbering& numbering :
       {Numbering{"RANK", "WORLD_SIZE"}, Numbering{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        Numbering{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
    if (reader.text(numbering.rank) || reader.text(numbering.size)) return numbering;
  }
  return std::nullopt;
}

void readNumbering(Reader& reader, CommunicatorOptions& options) {
  const auto numbering = findNumbering(reader);
  if (!numbering) {
    return reader.refuse(
        "RANK and WORLD_SIZE are not set: start the program with `theseus run`, torchrun, srun or mpirun, or "
        "set RANK, "
        "WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
  }
  for (const char* name : {numbering->rank, numbering->size}) {
    if (!reader.text(name))
      return reader.refuse(fmt::format("{} is not set although {} is", name,
                                       name == numbering->rank ? numbering->size : numbering->rank));
  }
  constexpr int kRanksMax = 1 << 20;
  reader.number(numbering->size, options.size, 1, kRanksMax);
  reader.number(numbering->rank, options.rank, 0, kRanksMax);
  if (options.rank >= options.size) {
    reader.refuse(fmt::format("{}={} does not fit {}={}: ranks count from 0", numbering->rank, options.rank,
                              numbering->size, options.size));
  }
}

void readMaster(Reader& reader, CommunicatorOptions& options) {
  if (auto address = reader.text("MASTER_ADDR"); address && !address->empty()) {
    options.masterAddress = *address;
  } else if (auto nodes = reader.text("SLURM_STEP_NODELIST"); nodes && !reader.text("RANK")) {
    options.masterAddress = firstSlurmHost(*nodes);
  } else if (options.size > 1 &&
             reader.text("OMPI_COMM_WORLD_LOCAL_SIZE") != reader.text("OMPI_COMM_WORLD_SIZE")) {
    reader.refuse(
        "MASTER_ADDR is not set and the ranks are on several hosts: set it to the host of rank 0 (mpirun -x "
        "MASTER_ADDR=HOST)");
  }
}

void readPort(Reader& reader, CommunicatorOptions& options) {
  options.masterPort = kPortDefault;
  if (reader.number("THESEUS_PORT", options.masterPort, 1, 65535)) return;
  if (reader.number("MASTER_PORT", options.masterPort, 1, 65535)) {
    // torchrun's own store listens at MASTER_PORT on the same host.
    if (reader.text("TORCHELASTIC_RUN_ID")) options.masterPort += options.masterPort < 65535 ? 1 : -1;
    return;
  }
  std::uint64_t job = 0, step = 0;
  if (reader.text("RANK") || !reader.number<std::uint64_t>("SLURM_JOB_ID", job, 0, ~std::uint64_t{0})) return;
  reader.number<std::uint64_t>("SLURM_STEP_ID", step, 0, ~std::uint64_t{0});
  // Jobs that share a host get different ports, below the range that the kernel gives out by itself.
  options.masterPort = 20000 + static_cast<int>((job * 16 + step * 4) % 8000);
}

}  // namespace

std::string firstSlurmHost(std::string_view list) {
  const std::size_t end = list.find_first_of(",[");
  std::string host(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return host;
  const std::string_view inside = list.substr(end + 1);
  host += inside.substr(0, inside.find_first_of(",-]"));
  const std::size_t close = inside.find(']');
  if (close == std::string_view::npos) return host;
  const std::string_view tail = inside.substr(close + 1);  // "rack[1-2]-blade": rare, but legal
  return host + std::string(tail.substr(0, tail.find_first_of(",[")));
}

Result<CommunicatorOptions> optionsFrom(const EnvironmentLookup& lookup) {
  Reader reader(lookup);
  CommunicatorOptions options;
  readNumbering(reader, options);
  THESEUS_TRY(reader.status());
  readMaster(reader, options);
  readPort(reader, options);
  reader.copy("THESEUS_BIND_ADDRESS", options.bindAddress);
  reader.copy("THESEUS_SECRET", options.secret);
  reader.copy("THESEUS_TRANSPORT", options.transport);
  reader.copy("THESEUS_SCHEDULE", options.schedule);
  reader.flag("THESEUS_CONTROL", options.control);
  reader.flag("THESEUS_CTL", options.ctl);
  reader.number("THESEUS_LINK_BYTES_PER_SECOND", options.emulatedLinkBytesPerSecond, 0.0, 1e15);
  double seconds = 0;
  if (reader.number("THESEUS_TIMEOUT", seconds, 0.001, 1e6)) {
    options.timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
  }
  bool known = false;
  for (const char* transport : {"auto", "loopback", "shm", "tcp"})
    known = known || options.transport == transport;
  if (!known)
    reader.refuse(fmt::format("THESEUS_TRANSPORT=\"{}\" is unknown; use auto, loopback, shm or tcp",
                              options.transport));
  THESEUS_TRY(reader.status());
  return options;
}

Result<CommunicatorOptions> optionsFromEnvironment() {
  return optionsFrom([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

}  // namespace theseus::runtime
