#include "transport/tcp/goodbye.h"

#include <span>

#include "drivers/posix/socket.h"
#include "transport/segment.h"
#include "transport/tcp/channel.h"

namespace theseus::transport {

void sayGoodbye(const drivers::FileDescriptor& socket) {
  SegmentHeader goodbye{};
  goodbye.magic = kGoodbyeMagic;
  goodbye.kind = SegmentKind{0};
  const iovec piece{&goodbye, sizeof(goodbye)};
  (void)drivers::sendGathered(socket, std::span(&piece, 1));
}

}  // namespace theseus::transport
