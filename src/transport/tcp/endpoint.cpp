#include "transport/endpoint.h"

namespace theseus::transport {

Result<std::unique_ptr<Endpoint>> makeTcpEndpoint(const EndpointOptions&, const TcpOptions&) {
  return fail(ErrorCode::kUnsupported, "this build has no tcp transport");
}

}  // namespace theseus::transport
