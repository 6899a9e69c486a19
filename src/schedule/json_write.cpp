#include <algorithm>
#include <nlohmann/json.hpp>

#include "schedule/json.h"

namespace theseus::schedule {
namespace {

using Json = nlohmann::ordered_json;

Json list(const std::vector<std::uint32_t>& ids) { return ids.empty() ? Json::array() : Json(ids); }

Json writeOperand(const Operand& operand) {
  Json out;
  switch (operand.place) {
    case Operand::Place::kLocal:
      out["type"] = name(operand.buffer);
      break;
    case Operand::Place::kRemote:
      out["buffer_id"] = operand.id;
      break;
    case Operand::Place::kSwitch:
      out["switch_channel_id"] = operand.id;
      break;
  }
  out["index"] = operand.index;
  out["size"] = operand.size;
  return out;
}

void writeOperands(Json& out, const char* key, const std::vector<Operand>& operands) {
  if (operands.empty()) return;
  auto& array = out[key] = Json::array();
  for (const auto& operand : operands) array.push_back(writeOperand(operand));
}

/// Recursion is as deep as pipelines nest: one level in a valid plan, bounded by the reader in any other.
Json writeOp(const Op& op) {
  Json out;
  out["name"] = traits(op.code).name;
  if (op.channelType) out["channel_type"] = name(*op.channelType);
  if (!op.channelIds.empty()) out["channel_ids"] = list(op.channelIds);
  writeOperands(out, "src_buff", op.sources);
  writeOperands(out, "dst_buff", op.destinations);
  if (op.group) out["tbg_info"] = {{"tb_id", op.group->index}, {"tbg_size", op.group->size}};
  if (op.barrierId) out["barrier_id"] = *op.barrierId;
  if (op.barrierThreadBlocks) out["num_threadblocks"] = *op.barrierThreadBlocks;
  if (!op.semaphoreIds.empty()) out["semaphore_ids"] = list(op.semaphoreIds);
  const bool pipeline = op.code == OpCode::kPipeline;
  if (pipeline || op.pipelineUnitBytes != 0 || op.pipelineChunks != 0) {
    out["iter_context"] = {{"unit_size", op.pipelineUnitBytes}, {"num_chunks", op.pipelineChunks}};
  }
  if (pipeline || !op.inner.empty()) {
    auto& inner = out["ops"] = Json::array();
    for (const auto& each : op.inner) inner.push_back(writeOp(each));
  }
  if (op.reduceOp) out["reduce_op"] = name(*op.reduceOp);
  return out;
}

Json writeThreadBlock(const ThreadBlock& block, std::size_t id) {
  Json out;
  out["id"] = id;
  auto& ops = out["ops"] = Json::array();
  for (const auto& op : block.ops) ops.push_back(writeOp(op));
  auto& channels = out["channels"] = Json::array();
  for (const auto& each : block.channels) {
    channels.push_back({{"channel_type", name(each.type)}, {"channel_ids", list(each.ids)}});
  }
  auto& remotes = out["remote_buffer_refs"] = Json::array();
  for (const auto& each : block.remoteBuffers) {
    remotes.push_back(
        {{"access_channel_type", name(each.accessType)}, {"remote_buffer_ids", list(each.ids)}});
  }
  return out;
}

Json writeChannels(const ChannelDeclaration& declaration) {
  Json out;
  out["channel_type"] = name(declaration.type);
  if (declaration.type != ChannelType::kSwitch) {
    auto& peers = out["connected_to"] = Json::array();
    for (const auto peer : declaration.connectedTo) peers.push_back(peer);
    return out;
  }
  out["buffer_type"] = name(declaration.switchBuffer);
  auto& groups = out["rank_groups"] = Json::array();
  for (const auto& group : declaration.rankGroups) {
    Json ranks = Json::array();
    for (const auto rank : group.ranks) ranks.push_back(rank);
    groups.push_back({{"size", group.size}, {"ranks", ranks}});
  }
  return out;
}

Json writeRemoteBuffer(const RemoteBuffer& buffer) {
  auto types = buffer.accessTypes;
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  Json names = Json::array();
  for (const auto type : types) names.push_back(name(type));
  return {{"rank", buffer.rank}, {"type", name(buffer.kind)}, {"access_channel_types", names}};
}

Json writeRank(const RankPlan& plan, std::size_t id) {
  Json out;
  out["id"] = id;
  out["input_chunks"] = plan.inputChunks;
  out["output_chunks"] = plan.outputChunks;
  out["scratch_chunks"] = plan.scratchChunks;
  auto& blocks = out["threadblocks"] = Json::array();
  for (std::size_t i = 0; i < plan.threadBlocks.size(); ++i) {
    blocks.push_back(writeThreadBlock(plan.threadBlocks[i], i));
  }
  auto& channels = out["channels"] = Json::array();
  for (const auto& each : plan.channels) channels.push_back(writeChannels(each));
  auto& remotes = out["remote_buffers"] = Json::array();
  for (const auto& each : plan.remoteBuffers) remotes.push_back(writeRemoteBuffer(each));
  auto& semaphores = out["semaphores"] = Json::array();
  for (const auto value : plan.semaphores) semaphores.push_back({{"init_value", value}});
  return out;
}

}  // namespace

std::string writeJson(const Schedule& schedule, bool pretty) {
  Json out;
  out["name"] = schedule.name;
  out["collective"] = schedule.collectiveName;
  out["protocol"] = schedule.protocol;
  out["inplace"] = schedule.bufferMode != BufferMode::kOutOfPlace;
  if (schedule.bufferMode == BufferMode::kEither) out["out_of_place"] = true;
  out["reuse_resources"] = schedule.reuseResources;
  out["use_double_scratch_buffer"] = schedule.doubleScratch;
  out["num_threads_per_block"] = schedule.threadsPerBlock;
  out["buffer_alignment"] = schedule.bufferAlignment;
  out["min_message_size"] = schedule.minMessageBytes;
  out["max_message_size"] = schedule.maxMessageBytes;
  if (schedule.root != 0) out["root"] = schedule.root;
  if (!schedule.usable.empty()) out["usable"] = schedule.usable;
  if (!schedule.score.empty()) out["score"] = schedule.score;
  if (!schedule.provenance.empty()) {
    auto& provenance = out["provenance"] = Json::object();
    for (const auto& [key, value] : schedule.provenance) provenance[key] = value;
  }
  auto& ranks = out["gpus"] = Json::array();
  for (std::size_t i = 0; i < schedule.ranks.size(); ++i) ranks.push_back(writeRank(schedule.ranks[i], i));
  // Text that is no UTF-8 (only code can bring it in) is replaced rather than thrown at.
  return out.dump(pretty ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace theseus::schedule
