// Helpers of the tests of joining: free ports, ranks as threads, strangers. Test programs only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/bootstrap_socket.h"

namespace theseus::runtime::testing {

/// `count` ports in a row that nobody uses now, below the range that the kernel gives to outgoing
/// connections.
inline int freePortRange(int count) {
  static int next = 10000 + static_cast<int>(::getpid() % 800) * 24;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int first = next;
    next = first + count > 31000 ? 10000 : first + count;
    bool free = true;
    for (int port = first; port < first + count && free; ++port) {
      auto address = parseNumericAddress("127.0.0.1", port);
      auto socket = listenOn(*address);
      free = socket && *socket;
    }
    if (free) return first;
  }
  return 0;
}

inline CommunicatorOptions jobOptions(int size, int port,
                                      std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  CommunicatorOptions options;
  options.size = size;
  options.masterPort = port;
  options.secret = "sesame";
  options.timeout = timeout;
  return options;
}

/// Runs `body(rank)` for each rank on its own thread and waits for all.
inline void onThreads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

/// A blocking connection to 127.0.0.1:port; tries until somebody listens (bounded).
inline Descriptor connectBlocking(int port) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = parseNumericAddress("127.0.0.1", port);
    if (::connect(socket.get(), address->get(), address->length) == 0) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {};
}

inline void sendText(const Descriptor& socket, const std::string& text) {
  (void)!::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

}  // namespace theseus::runtime::testing
