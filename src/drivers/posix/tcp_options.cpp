// Apart from socket.cpp because the kernel's own header, which alone has the newer fields of tcp_info,
// clashes with libc's.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>

#include "drivers/posix/socket.h"

namespace theseus::drivers {

Status tuneTcp(const FileDescriptor& socket, const TcpTuning& tuning) {
  const int on = 1;
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
    return failSystem("setting TCP_NODELAY", errno, ErrorCode::kTransport);
  const std::string& name = tuning.congestionControl;
  if (!name.empty())
    (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                       static_cast<socklen_t>(name.size()));
  if (tuning.unsentBytesMax > 0)
    (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &tuning.unsentBytesMax,
                       sizeof(tuning.unsentBytesMax));
  return {};
}

Result<TcpFlowState> tcpFlowState(const FileDescriptor& socket) {
  tcp_info information{};
  socklen_t length = sizeof(information);
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &information, &length) != 0)
    return failSystem("TCP_INFO", errno, ErrorCode::kTransport);
  if (length < offsetof(tcp_info, tcpi_rwnd_limited) + sizeof(information.tcpi_rwnd_limited))
    return fail(ErrorCode::kUnsupported,
                "TCP_INFO of this kernel tells too little: Linux 4.9 or later is needed");
  return TcpFlowState{.acknowledgedBytes = information.tcpi_bytes_acked,
                      .unsentBytes = information.tcpi_notsent_bytes,
                      .receiverLimited = std::chrono::microseconds(information.tcpi_rwnd_limited)};
}

}  // namespace theseus::drivers
