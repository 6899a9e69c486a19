#include "schedule/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace theseus::schedule {
namespace {

using Json = nlohmann::json;

// A plan nests 11 levels; anything much deeper is no plan and must not cost stack or memory.
constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxTextBytes = 64u << 20;
constexpr std::size_t kMaxArrayLength = 1u << 20;
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMaxRank = std::numeric_limits<Rank>::max();

std::string shortened(std::string text) {
  constexpr std::size_t kLimit = 200;
  if (text.size() > kLimit) text = text.substr(0, kLimit) + "...";
  return text;
}

// ---- text -> values, with bounded depth and no key twice
// -------------------------------------------------------

class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) return refuse(fmt::format("key \"{}\" twice", shortened(name)));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& exception) override {
    const std::string what = exception.what();  // "[json.exception...] parse error at line 1, column 2: ..."
    const auto end = what.find("] ");
    problem_ = shortened(end == std::string::npos ? what : what.substr(end + 2));
    return false;
  }

  Json root;
  const std::string& problem() const { return problem_; }

 private:
  Json* place(Json&& value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    auto& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    if (parent.size() >= kMaxArrayLength) return nullptr;
    parent.push_back(std::move(value));
    return &parent.back();
  }

  bool add(Json&& value) {
    return place(std::move(value)) != nullptr ||
           refuse(fmt::format("more than {} elements", kMaxArrayLength));
  }

  bool open(Json&& value) {
    if (open_.size() >= kMaxDepth) return refuse(fmt::format("nested deeper than {} levels", kMaxDepth));
    Json* const placed = place(std::move(value));
    if (placed == nullptr) return refuse(fmt::format("more than {} elements", kMaxArrayLength));
    keys_.push_back(key_);
    open_.push_back(placed);
    return true;
  }

  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  bool refuse(const std::string& what) {
    std::string path;
    for (std::size_t i = 1; i < open_.size(); ++i) {
      const auto& parent = *open_[i - 1];
      if (parent.is_array()) {
        path += fmt::format("[{}]", parent.size() - 1);
      } else {
        path += (path.empty() ? "" : ".") + shortened(keys_[i]);
      }
    }
    problem_ = fmt::format("{}: {}", path.empty() ? "top level" : path, what);
    return false;
  }

  std::vector<Json*> open_;
  std::vector<std::string> keys_;  // under which each open value stands
  std::string key_;
  std::string problem_;
};

// ---- values -> fields
// ------------------------------------------------------------------------------------------

/// Where a value stands; linked on the stack, spelled out only for an error.
struct Place {
  const Place* parent = nullptr;
  std::string_view key;
  std::size_t index = 0;  // used when key is empty
};

std::string toString(const Place& place) {
  if (place.parent == nullptr) return "";
  const auto before = toString(*place.parent);
  if (place.key.empty()) return fmt::format("{}[{}]", before, place.index);
  return before.empty() ? std::string(place.key) : fmt::format("{}.{}", before, place.key);
}

/// The first problem; later ones are consequences.
class Problems {
 public:
  void add(const Place& place, const std::string& what) {
    if (first_) return;
    const auto path = toString(place);
    first_ = Error{ErrorCode::kInvalidSchedule,
                   fmt::format("plan JSON: {}: {}", path.empty() ? "top level" : path, what)};
  }
  bool any() const { return first_.has_value(); }
  const Error& first() const { return *first_; }

 private:
  std::optional<Error> first_;
};

std::string shown(const Json& value) {
  auto text = value.is_structured() ? std::string(value.type_name())
                                    : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

/// Fields of one JSON object. After the first problem every read gives a default.
class Fields {
 public:
  /// `known` lists every key the object may have; nothing is checked when it is empty.
  Fields(Problems& problems, const Json& value, const Place& place,
         std::initializer_list<std::string_view> known)
      : problems_(problems), value_(value), place_(place) {
    if (!value.is_object()) {
      problems_.add(place, fmt::format("must be an object, is {}", shown(value)));
      return;
    }
    if (known.size() == 0) return;
    for (const auto& item : value.items()) {
      if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
        problems_.add(place, fmt::format("unknown key \"{}\"", shortened(item.key())));
      }
    }
  }

  bool has(std::string_view key) const { return value_.is_object() && value_.contains(key); }

  std::uint64_t whole(std::string_view key, std::uint64_t maximum) const {
    const Json* const value = find(key);
    if (value == nullptr) return 0;
    return wholeOf(*value, Place{&place_, key}, maximum);
  }
  std::uint64_t wholeOr(std::string_view key, std::uint64_t maximum, std::uint64_t fallback) const {
    return has(key) ? whole(key, maximum) : fallback;
  }
  std::uint32_t whole32(std::string_view key) const { return static_cast<std::uint32_t>(whole(key, kMax32)); }
  Rank rank(std::string_view key) const { return static_cast<Rank>(whole(key, kMaxRank)); }

  std::int64_t signedWhole(std::string_view key) const {
    const Json* const value = find(key);
    if (value == nullptr) return 0;
    const bool fits =
        value->is_number_integer() &&
        (!value->is_number_unsigned() ||
         value->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    if (fits) return value->get<std::int64_t>();
    problems_.add(Place{&place_, key},
                  fmt::format("must be a whole number of 63 bits, is {}", shown(*value)));
    return 0;
  }

  bool flagOr(std::string_view key, std::optional<bool> fallback) const {
    if (fallback && !has(key)) return *fallback;
    const Json* const value = find(key);
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    if (value != nullptr)
      problems_.add(Place{&place_, key}, fmt::format("must be true or false, is {}", shown(*value)));
    return false;
  }

  std::string text(std::string_view key) const {
    const Json* const value = find(key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    if (value != nullptr)
      problems_.add(Place{&place_, key}, fmt::format("must be a string, is {}", shown(*value)));
    return {};
  }
  std::string textOr(std::string_view key, std::string fallback) const {
    return has(key) ? text(key) : fallback;
  }

  /// A string that `parse` knows.
  template <class Parse>
  auto word(std::string_view key, Parse parse) const {
    const auto spelled = text(key);
    const auto found = parse(spelled);
    if (!found)
      problems_.add(Place{&place_, key}, fmt::format("\"{}\" is not known here", shortened(spelled)));
    return found.value_or(typename decltype(parse(spelled))::value_type{});
  }

  /// Calls `use(element, its place)` for each element of an array.
  template <class Use>
  void each(std::string_view key, Use use) const {
    const Json* const value = find(key);
    if (value == nullptr) return;
    const Place here{&place_, key};
    if (!value->is_array()) {
      problems_.add(here, fmt::format("must be an array, is {}", shown(*value)));
      return;
    }
    for (std::size_t i = 0; i < value->size() && !problems_.any(); ++i) use((*value)[i], Place{&here, {}, i});
  }
  template <class Use>
  void eachIf(std::string_view key, Use use) const {
    if (has(key)) each(key, use);
  }

  template <class Integer>
  void numbers(std::string_view key, std::uint64_t maximum, std::vector<Integer>& out) const {
    each(key, [&](const Json& value, const Place& place) {
      out.push_back(static_cast<Integer>(wholeOf(value, place, maximum)));
    });
  }

  /// Calls `use(object, its place)` when the key is there.
  template <class Use>
  void child(std::string_view key, Use use) const {
    if (has(key)) use(value_[key], Place{&place_, key});
  }

  Problems& problems() const { return problems_; }
  void refuse(std::string_view key, const std::string& what) const {
    problems_.add(Place{&place_, key}, what);
  }
  void refuse(const std::string& what) const { problems_.add(place_, what); }

 private:
  const Json* find(std::string_view key) const {
    if (has(key)) return &value_[key];
    problems_.add(place_, fmt::format("key \"{}\" is missing", key));
    return nullptr;
  }

  std::uint64_t wholeOf(const Json& value, const Place& place, std::uint64_t maximum) const {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() <= maximum)
      return value.get<std::uint64_t>();
    problems_.add(place, fmt::format("must be a whole number from 0 to {}, is {}", maximum, shown(value)));
    return 0;
  }

  Problems& problems_;
  const Json& value_;
  Place place_;
};

// ---- fields -> schedule
// ----------------------------------------------------------------------------------------

class PlanReader {
 public:
  explicit PlanReader(Problems& problems) : problems_(problems) {}

  Schedule readPlan(const Json& root) {
    const Place top;
    const Fields fields(problems_, root, top, {});  // unknown keys are tolerated at the top level only
    Schedule schedule;
    schedule.name = fields.text("name");
    schedule.collectiveName = fields.text("collective");
    schedule.protocol = fields.text("protocol");
    schedule.bufferMode = readBufferMode(fields);
    schedule.reuseResources = fields.flagOr("reuse_resources", false);
    schedule.doubleScratch = fields.flagOr("use_double_scratch_buffer", false);
    schedule.threadsPerBlock =
        static_cast<std::uint32_t>(fields.wholeOr("num_threads_per_block", kMax32, 1024));
    schedule.bufferAlignment = static_cast<std::uint32_t>(fields.wholeOr("buffer_alignment", kMax32, 16));
    schedule.minMessageBytes = fields.wholeOr("min_message_size", kMax64, 0);
    schedule.maxMessageBytes = fields.wholeOr("max_message_size", kMax64, kMax64);
    schedule.root = static_cast<Rank>(fields.wholeOr("root", kMaxRank, 0));
    schedule.usable = fields.textOr("usable", "");
    schedule.score = fields.textOr("score", "");
    fields.child("provenance", [&](const Json& value, const Place& place) {
      const Fields entries(problems_, value, place, {});
      if (!value.is_object()) return;
      for (const auto& item : value.items()) schedule.provenance[item.key()] = entries.text(item.key());
    });
    fields.each("gpus", [&](const Json& value, const Place& place) {
      rank_ = static_cast<Rank>(place.index);
      schedule.ranks.push_back(readRank(value, place));
    });
    return schedule;
  }

 private:
  static BufferMode readBufferMode(const Fields& fields) {
    const bool inPlace = fields.flagOr("inplace", std::nullopt);
    const bool outOfPlace = fields.flagOr("out_of_place", !inPlace);
    if (!inPlace && !outOfPlace) fields.refuse("out_of_place", "false although \"inplace\" is false too");
    if (!inPlace) return BufferMode::kOutOfPlace;
    return outOfPlace ? BufferMode::kEither : BufferMode::kInPlace;
  }

  RankPlan readRank(const Json& value, const Place& place) {
    const Fields fields(problems_, value, place,
                        {"id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels",
                         "remote_buffers", "semaphores"});
    checkId(fields, place);
    RankPlan plan;
    plan.inputChunks = fields.whole32("input_chunks");
    plan.outputChunks = fields.whole32("output_chunks");
    plan.scratchChunks = fields.whole32("scratch_chunks");
    fields.eachIf("channels", [&](const Json& each, const Place& at) {
      plan.channels.push_back(readChannels(each, at));
    });
    fields.eachIf("remote_buffers", [&](const Json& each, const Place& at) {
      plan.remoteBuffers.push_back(readRemote(each, at));
    });
    fields.eachIf("semaphores", [&](const Json& each, const Place& at) {
      plan.semaphores.push_back(Fields(problems_, each, at, {"init_value"}).signedWhole("init_value"));
    });
    fields.each("threadblocks",
                [&](const Json& each, const Place& at) { plan.threadBlocks.push_back(readBlock(each, at)); });
    return plan;
  }

  static void checkId(const Fields& fields, const Place& place) {
    if (fields.whole("id", kMax32) != place.index && !fields.problems().any()) {
      fields.refuse("id", fmt::format("must be {}, the position in the list", place.index));
    }
  }

  ChannelDeclaration readChannels(const Json& value, const Place& place) {
    const Fields fields(problems_, value, place,
                        {"channel_type", "connected_to", "buffer_type", "buff", "rank_groups"});
    ChannelDeclaration declaration;
    declaration.type = fields.word("channel_type", parseChannelType);
    if (declaration.type != ChannelType::kSwitch) {
      fields.numbers("connected_to", kMaxRank, declaration.connectedTo);
      return declaration;
    }
    // Old files say "buff".
    declaration.switchBuffer =
        fields.word(fields.has("buffer_type") ? "buffer_type" : "buff", parseBufferKind);
    fields.each("rank_groups", [&](const Json& each, const Place& at) {
      const Fields group(problems_, each, at, {"size", "ranks"});
      auto& out = declaration.rankGroups.emplace_back();
      out.size = group.whole32("size");
      group.numbers("ranks", kMaxRank, out.ranks);
    });
    return declaration;
  }

  RemoteBuffer readRemote(const Json& value, const Place& place) {
    const Fields fields(problems_, value, place, {"rank", "type", "access_channel_types"});
    RemoteBuffer buffer;
    buffer.rank = fields.rank("rank");
    buffer.kind = fields.word("type", parseBufferKind);
    fields.each("access_channel_types", [&](const Json& each, const Place& at) {
      const auto type = each.is_string() ? parseChannelType(each.get<std::string>()) : std::nullopt;
      if (!type)
        problems_.add(at, fmt::format("must be \"memory\", \"port\" or \"switch\", is {}", shown(each)));
      buffer.accessTypes.push_back(type.value_or(ChannelType::kMemory));
    });
    auto& types = buffer.accessTypes;  // a set: its order in files is random
    std::sort(types.begin(), types.end());
    types.erase(std::unique(types.begin(), types.end()), types.end());
    return buffer;
  }

  ThreadBlock readBlock(const Json& value, const Place& place) {
    const Fields fields(problems_, value, place, {"id", "ops", "channels", "remote_buffer_refs"});
    checkId(fields, place);
    ThreadBlock block;
    fields.eachIf("channels", [&](const Json& each, const Place& at) {
      const Fields list(problems_, each, at,
                        {"channel_type", "channel_ids", "buff"});  // "buff" is old and unused
      auto& out = block.channels.emplace_back();
      out.type = list.word("channel_type", parseChannelType);
      list.numbers("channel_ids", kMax32, out.ids);
    });
    fields.eachIf("remote_buffer_refs", [&](const Json& each, const Place& at) {
      const Fields list(problems_, each, at, {"access_channel_type", "remote_buffer_ids"});
      auto& out = block.remoteBuffers.emplace_back();
      out.accessType = list.word("access_channel_type", parseChannelType);
      list.numbers("remote_buffer_ids", kMax32, out.ids);
    });
    fields.each("ops", [&](const Json& each, const Place& at) { block.ops.push_back(readOp(each, at)); });
    return block;
  }

  /// Recursion follows the nesting of pipelines, which kMaxDepth bounds.
  Op readOp(const Json& value, const Place& place) {
    const Fields fields(problems_, value, place,
                        {"name", "channel_type", "channel_ids", "src_buff", "dst_buff", "tbg_info",
                         "barrier_id", "num_threadblocks", "semaphore_ids", "iter_context", "ops",
                         "reduce_op", "buffer_type", "buffer_offset", "size", "dst_chunk"});
    Op op;
    op.code = fields.word("name", parseOpCode);
    if (fields.has("channel_type")) op.channelType = fields.word("channel_type", parseChannelType);
    if (fields.has("channel_ids")) fields.numbers("channel_ids", kMax32, op.channelIds);
    if (fields.has("semaphore_ids")) fields.numbers("semaphore_ids", kMax32, op.semaphoreIds);
    fields.eachIf("src_buff",
                  [&](const Json& each, const Place& at) { op.sources.push_back(readOperand(each, at)); });
    fields.eachIf("dst_buff", [&](const Json& each, const Place& at) {
      op.destinations.push_back(readOperand(each, at));
    });
    fields.child("tbg_info", [&](const Json& each, const Place& at) {
      const Fields group(problems_, each, at, {"tb_id", "tbg_size"});
      op.group = ThreadBlockGroup{group.whole32("tb_id"), group.whole32("tbg_size")};
    });
    if (fields.has("barrier_id")) op.barrierId = fields.whole32("barrier_id");
    if (fields.has("num_threadblocks")) op.barrierThreadBlocks = fields.whole32("num_threadblocks");
    if (fields.has("reduce_op")) op.reduceOp = fields.word("reduce_op", parseReduceOp);
    if (op.code == OpCode::kPipeline && !fields.has("iter_context"))
      fields.refuse("key \"iter_context\" is missing");
    fields.child("iter_context", [&](const Json& each, const Place& at) {
      const Fields context(problems_, each, at, {"unit_size", "num_chunks"});
      op.pipelineUnitBytes = context.whole("unit_size", kMax64);
      op.pipelineChunks = context.whole32("num_chunks");
    });
    fields.eachIf("ops", [&](const Json& each, const Place& at) { op.inner.push_back(readOp(each, at)); });
    readSwitchForm(fields, op);
    return op;
  }

  /// glre as MSCCL++'s language writes it: the source spread over keys of its own.
  void readSwitchForm(const Fields& fields, Op& op) {
    const bool spread = fields.has("buffer_type") || fields.has("buffer_offset") || fields.has("size") ||
                        fields.has("dst_chunk");
    if (!spread) return;
    if (op.code != OpCode::kGroupLoadReduce || !op.sources.empty() || !op.destinations.empty()) {
      fields.refuse(
          "buffer_type, buffer_offset, size and dst_chunk belong to a glre without src_buff and dst_buff");
      return;
    }
    (void)fields.word("buffer_type", parseBufferKind);  // said again in the switch channel's declaration
    if (op.channelIds.size() != 1) fields.refuse("channel_ids", "must name the one switch channel");
    Operand source;
    source.place = Operand::Place::kSwitch;
    source.id = op.channelIds.empty() ? 0 : op.channelIds[0];
    source.index = fields.whole32("buffer_offset");
    source.size = fields.whole32("size");
    op.sources.push_back(source);
    if (!fields.has("dst_chunk")) fields.refuse("key \"dst_chunk\" is missing");
    fields.child("dst_chunk", [&](const Json& each, const Place& at) {
      op.destinations.push_back(readOperand(each, at));
    });
  }

  Operand readOperand(const Json& value, const Place& place) {
    const Fields fields(problems_, value, place,
                        {"type", "buffer_id", "switch_channel_id", "index", "size", "rank"});
    Operand operand;
    operand.index = fields.whole32("index");
    operand.size = fields.whole32("size");
    const int forms =
        int{fields.has("type")} + int{fields.has("buffer_id")} + int{fields.has("switch_channel_id")};
    if (forms != 1) {
      fields.refuse("needs exactly one of \"type\", \"buffer_id\" and \"switch_channel_id\"");
    } else if (fields.has("type")) {
      operand.buffer = fields.word("type", parseBufferKind);
    } else {
      const bool remote = fields.has("buffer_id");
      operand.place = remote ? Operand::Place::kRemote : Operand::Place::kSwitch;
      operand.id = fields.whole32(remote ? "buffer_id" : "switch_channel_id");
    }
    // The language adds the own rank in places; another rank would be a remote operand in disguise.
    if (fields.has("rank") && fields.rank("rank") != rank_)
      fields.refuse("rank", fmt::format("must be {}", rank_));
    return operand;
  }

  Problems& problems_;
  Rank rank_ = 0;
};

Result<Schedule> readChecked(std::string_view text) {
  TreeBuilder builder;
  if (!Json::sax_parse(text, &builder))
    return fail(ErrorCode::kInvalidSchedule, "plan JSON: " + builder.problem());
  Problems problems;
  auto schedule = PlanReader(problems).readPlan(builder.root);
  if (problems.any()) return fail(problems.first());
  return schedule;
}

}  // namespace

Result<Schedule> readJson(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return fail(ErrorCode::kInvalidSchedule,
                fmt::format("plan JSON of {} bytes: {} are the most; large plans are "
                            "better given as a generator call",
                            text.size(), kMaxTextBytes));
  }
  try {
    return readChecked(text);
  } catch (const std::exception& exception) {
    return fail(ErrorCode::kInvalidSchedule, fmt::format("plan JSON: {}", exception.what()));
  }
}

}  // namespace theseus::schedule
