// Packets of uneven chunks. A reader of packets waits for every byte it names, and a forwarder that names its
// whole slot would wait for bytes that a shorter chunk never sends. Internal to this folder; pure, any
// thread.
#pragma once

#include "schedule/chunk_layout.h"

namespace theseus::schedule {

/// Gives every scratch chunk the length of the longest data that the plan ever writes to it. Does nothing for
/// plans without packets and for sizes whose chunks fill their slots. Errors: operands out of range, a plan
/// too large.
Status shortenPackets(const Schedule& schedule, ChunkLayout& layout);

}  // namespace theseus::schedule
