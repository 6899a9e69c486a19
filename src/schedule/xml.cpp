#include "schedule/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "schedule/json.h"
#include "schedule/xml_program.h"

#ifdef THESEUS_HAVE_PUGIXML
#include <pugixml.hpp>
#endif

namespace theseus::schedule {

#ifdef THESEUS_HAVE_PUGIXML

namespace {

constexpr std::size_t kMaxTextBytes = 64u << 20;
constexpr std::int64_t kMaxRanks = 4096;
constexpr std::int64_t kMaxChunks = 1 << 20;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

tl::unexpected<Error> error(const std::string& place, const std::string& what) {
  return fail(ErrorCode::kInvalidSchedule, fmt::format("MSCCL XML: {}: {}", place, what));
}

struct StepName {
  std::string_view name;
  XmlStepType type;
};
constexpr std::array kStepNames = {
    StepName{"s", XmlStepType::kSend},
    StepName{"r", XmlStepType::kReceive},
    StepName{"rcs", XmlStepType::kReceiveCopySend},
    StepName{"rrc", XmlStepType::kReceiveReduceCopy},
    StepName{"rrs", XmlStepType::kReceiveReduceSend},
    StepName{"rrcs", XmlStepType::kReceiveReduceCopySend},
    StepName{"cpy", XmlStepType::kCopy},
    StepName{"re", XmlStepType::kReduce},
    StepName{"ra", XmlStepType::kReduce},
    StepName{"nop", XmlStepType::kNop},
};

/// Attributes of one element; remembers the first problem, after which every read gives a default.
class Attributes {
 public:
  Attributes(const pugi::xml_node& node, std::string place) : node_(node), place_(std::move(place)) {}

  bool has(const char* key) const { return !node_.attribute(key).empty(); }

  std::int64_t number(const char* key, std::int64_t minimum, std::int64_t maximum) {
    const std::string_view text = value(key);
    std::int64_t parsed = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (code == std::errc{} && end == text.data() + text.size() && parsed >= minimum && parsed <= maximum)
      return parsed;
    refuse(fmt::format("{}=\"{}\" must be a whole number from {} to {}", key, text.substr(0, 40), minimum,
                       maximum));
    return minimum;
  }
  std::int64_t numberOr(const char* key, std::int64_t fallback, std::int64_t minimum, std::int64_t maximum) {
    return has(key) ? number(key, minimum, maximum) : fallback;
  }

  std::string_view text(const char* key) { return value(key); }

  BufferKind buffer(const char* key) {
    const auto found = parseBufferKind(value(key));
    if (!found) refuse(fmt::format("{}=\"{}\" must be i, o or s", key, value(key).substr(0, 40)));
    return found.value_or(BufferKind::kInput);
  }

  void refuse(std::string what) {
    if (problem_.empty()) problem_ = std::move(what);
  }

  Status status() const {
    if (problem_.empty()) return {};
    return error(place_, problem_);
  }

 private:
  std::string_view value(const char* key) {
    const auto attribute = node_.attribute(key);
    if (attribute.empty()) refuse(fmt::format("attribute {} is missing", key));
    return attribute.value();
  }

  const pugi::xml_node& node_;
  std::string place_;
  std::string problem_;
};

/// Refuses any child element but `wanted`.
Status checkChildren(const pugi::xml_node& node, std::string_view wanted, const std::string& place) {
  for (const auto& child : node.children()) {
    const std::string_view found = child.name();
    if (child.type() != pugi::node_element || found == wanted) continue;
    if (found == "op")
      return error(place, "<op> elements are of the new form of msccl-tools; write the file with <step>");
    return error(place, fmt::format("element <{}> where only <{}> may stand", found.substr(0, 40), wanted));
  }
  return {};
}

Result<XmlStep> readStep(const pugi::xml_node& node, const std::string& place) {
  Attributes attributes(node, place);
  XmlStep step;
  const auto type = attributes.text("type");
  const auto* const row =
      std::find_if(kStepNames.begin(), kStepNames.end(), [&](const auto& each) { return each.name == type; });
  if (row == kStepNames.end()) {
    attributes.refuse(fmt::format("type=\"{}\" is not known", type.substr(0, 40)));
  } else {
    step.type = row->type;
  }
  step.source = {attributes.buffer("srcbuf"), attributes.number("srcoff", -1, kMaxChunks)};
  step.destination = {attributes.buffer("dstbuf"), attributes.number("dstoff", -1, kMaxChunks)};
  step.count = static_cast<std::uint32_t>(attributes.number("cnt", 0, kMaxChunks));
  step.dependBlock = attributes.number("depid", -1, kMax);
  step.dependStep = attributes.number("deps", -1, kMax);
  (void)attributes.number("hasdep", 0, 1);  // which steps publish; ours publish when somebody depends on them
  THESEUS_TRY(attributes.status());
  return step;
}

/// Children named `element` in the order of their number attribute `key`, which must run from 0 without gaps.
Result<std::vector<pugi::xml_node>> numbered(const pugi::xml_node& node, const char* element, const char* key,
                                             const std::string& place) {
  THESEUS_TRY(checkChildren(node, element, place));
  std::vector<pugi::xml_node> found;
  for (const auto& child : node.children(element)) found.push_back(child);
  std::vector<pugi::xml_node> ordered(found.size());
  for (const auto& child : found) {
    Attributes attributes(child, fmt::format("{} {}", place, element));
    const auto number =
        static_cast<std::size_t>(attributes.number(key, 0, static_cast<std::int64_t>(found.size()) - 1));
    THESEUS_TRY(attributes.status());
    if (!ordered[number].empty()) return error(place, fmt::format("{} {} twice", element, number));
    ordered[number] = child;
  }
  return ordered;
}

Result<XmlBlock> readBlock(const pugi::xml_node& node, const std::string& place) {
  Attributes attributes(node, place);
  XmlBlock block;
  block.sendPeer = static_cast<Rank>(attributes.number("send", -1, kMaxRanks));
  block.receivePeer = static_cast<Rank>(attributes.number("recv", -1, kMaxRanks));
  block.channel = attributes.number("chan", 0, kMax);
  THESEUS_TRY(attributes.status());
  const auto steps = numbered(node, "step", "s", place);
  if (!steps) return fail(steps.error());
  for (std::size_t i = 0; i < steps->size(); ++i) {
    auto step = readStep((*steps)[i], fmt::format("{} step {}", place, i));
    if (!step) return fail(step.error());
    block.steps.push_back(*step);
  }
  return block;
}

Result<XmlRank> readRank(const pugi::xml_node& node, const std::string& place) {
  Attributes attributes(node, place);
  XmlRank rank;
  rank.inputChunks = static_cast<std::uint32_t>(attributes.number("i_chunks", 0, kMaxChunks));
  rank.outputChunks = static_cast<std::uint32_t>(attributes.number("o_chunks", 0, kMaxChunks));
  rank.scratchChunks = static_cast<std::uint32_t>(attributes.number("s_chunks", 0, kMaxChunks));
  THESEUS_TRY(attributes.status());
  const auto blocks = numbered(node, "tb", "id", place);
  if (!blocks) return fail(blocks.error());
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    auto block = readBlock((*blocks)[i], fmt::format("{} tb {}", place, i));
    if (!block) return fail(block.error());
    rank.blocks.push_back(std::move(*block));
  }
  return rank;
}

/// RCCL says both ways of use; MSCCL has `inplace` alone.
BufferMode readBufferMode(Attributes& attributes) {
  const bool inPlace = attributes.number("inplace", 0, 1) == 1;
  const bool outOfPlace = attributes.numberOr("outofplace", inPlace ? 0 : 1, 0, 1) == 1;
  if (!inPlace && !outOfPlace) attributes.refuse("neither inplace nor outofplace is 1");
  if (!inPlace) return BufferMode::kOutOfPlace;
  return outOfPlace ? BufferMode::kEither : BufferMode::kInPlace;
}

Result<XmlProgram> readProgram(const pugi::xml_node& algo) {
  Attributes attributes(algo, "algo");
  XmlProgram program;
  program.name = std::string(attributes.text("name"));
  program.protocol = std::string(attributes.text("proto"));
  program.collectiveName = std::string(attributes.text("coll"));
  program.chunksPerLoop = static_cast<std::uint32_t>(attributes.number("nchunksperloop", 0, kMaxChunks));
  program.bufferMode = readBufferMode(attributes);
  program.minBytes = static_cast<std::uint64_t>(attributes.numberOr("minBytes", 0, 0, kMax));
  program.maxBytes = static_cast<std::uint64_t>(attributes.numberOr("maxBytes", 0, 0, kMax));
  program.threadsPerBlock = static_cast<std::uint32_t>(attributes.numberOr("nthreads", 1024, 1, 1024));
  const auto ranks = attributes.number("ngpus", 1, kMaxRanks);
  program.root = static_cast<Rank>(attributes.numberOr("root", 0, 0, ranks - 1));
  THESEUS_TRY(attributes.status());
  const auto gpus = numbered(algo, "gpu", "id", "algo");
  if (!gpus) return fail(gpus.error());
  if (gpus->size() != static_cast<std::size_t>(ranks)) {
    return error("algo", fmt::format("ngpus=\"{}\" but {} <gpu> elements", ranks, gpus->size()));
  }
  for (std::size_t i = 0; i < gpus->size(); ++i) {
    auto rank = readRank((*gpus)[i], fmt::format("gpu {}", i));
    if (!rank) return fail(rank.error());
    program.ranks.push_back(std::move(*rank));
  }
  return program;
}

}  // namespace

Result<Schedule> readXml(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return error("text", fmt::format("{} bytes; {} are the most", text.size(), kMaxTextBytes));
  }
  pugi::xml_document document;
  const auto parsed = document.load_buffer(text.data(), text.size());
  if (!parsed) return error(fmt::format("byte {}", parsed.offset), parsed.description());
  THESEUS_TRY(checkChildren(document, "algo", "top level"));
  const auto algo = document.child("algo");
  if (algo.empty() || !algo.next_sibling("algo").empty())
    return error("top level", "needs exactly one <algo>");
  const auto program = readProgram(algo);
  if (!program) return fail(program.error());
  return lower(*program);
}

#else

Result<Schedule> readXml(std::string_view) {
  return fail(ErrorCode::kUnsupported,
              "MSCCL XML: this build has no XML parser (pugixml); give the plan as JSON");
}

#endif

Result<Schedule> readAny(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  const bool marked = text.substr(0, kByteOrderMark.size()) == kByteOrderMark;
  const auto first = text.find_first_not_of(" \t\r\n", marked ? kByteOrderMark.size() : 0);
  if (first == std::string_view::npos) return fail(ErrorCode::kInvalidSchedule, "the plan's text is empty");
  if (text[first] == '{' || text[first] == '[') return readJson(text);
  if (text[first] == '<') return readXml(text);
  return fail(ErrorCode::kInvalidSchedule, "the text is neither a plan in JSON ('{') nor an MSCCL XML ('<')");
}

}  // namespace theseus::schedule
