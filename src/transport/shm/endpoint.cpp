#include "transport/endpoint.h"

namespace theseus::transport {

Result<std::unique_ptr<Endpoint>> makeShmEndpoint(const EndpointOptions&) {
  return fail(ErrorCode::kUnsupported, "this build has no shm transport");
}

}  // namespace theseus::transport
