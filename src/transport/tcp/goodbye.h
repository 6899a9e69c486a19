// The last words on a tcp connection, in either direction: they tell an orderly end from a crash.
#pragma once

#include "drivers/posix/descriptor.h"

namespace theseus::transport {

/// Best effort: a full or broken socket takes none, and then the peer sees an end without a goodbye.
void sayGoodbye(const drivers::FileDescriptor& socket);

}  // namespace theseus::transport
