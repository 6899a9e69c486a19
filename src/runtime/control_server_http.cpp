// The HTTP side of the control server; the only place in the runtime that knows the HTTP library.
#ifdef THESEUS_HTTP

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include <fmt/format.h>

#include "base/check.h"
#include "base/hmac.h"
#include "runtime/control_server.h"
#include "runtime/hello.h"

namespace theseus::runtime {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::size_t kPayloadBytesMax = 32u << 20;
constexpr std::size_t kThreads = 2;
constexpr time_t kTimeoutSeconds = 2;

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

int statusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidSchedule:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kMismatch:
      return 409;
    case ErrorCode::kUnsupported:
      return 501;
    case ErrorCode::kTimeout:
      return 504;
    default:
      return 500;
  }
}

void answerError(httplib::Response& response, const Error& error) {
  response.status = statusOf(error.code);
  response.set_content(dump({{"error", {{"code", errorCodeName(error.code)}, {"message", error.message}}}}),
                       "application/json");
}

void answer(httplib::Response& response, const Status& status) {
  if (!status) return answerError(response, status.error());
  response.set_content("{\"ok\":true}", "application/json");
}

Result<std::string> parameter(const httplib::Request& request, const char* name) {
  if (request.has_param(name)) return request.get_param_value(name);
  return fail(ErrorCode::kInvalidArgument, fmt::format("the parameter \"{}\" is missing", name));
}

Result<Collective> collectiveOf(const httplib::Request& request) {
  auto text = parameter(request, "collective");
  if (!text) return fail(text.error());
  const auto collective = parseCollective(*text);
  if (!collective) return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a collective", *text));
  return *collective;
}

Result<std::uint64_t> bytesOf(const httplib::Request& request) {
  auto text = parameter(request, "bytes");
  if (!text) return fail(text.error());
  std::uint64_t bytes = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), bytes);
  if (text->empty() || parsed.ec != std::errc() || parsed.ptr != text->data() + text->size()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a number of bytes", *text));
  }
  return bytes;
}

void addReading(httplib::Server& server, ControlInterface& control) {
  server.Get("/status", [&control](const httplib::Request&, httplib::Response& response) {
    response.set_content(control.statusJson(), "application/json");
  });
  server.Get("/metrics", [&control](const httplib::Request&, httplib::Response& response) {
    response.set_content(control.metricsText(), "text/plain; version=0.0.4");
  });
  server.Get("/explain", [&control](const httplib::Request& request, httplib::Response& response) {
    auto collective = collectiveOf(request);
    if (!collective) return answerError(response, collective.error());
    auto bytes = bytesOf(request);
    if (!bytes) return answerError(response, bytes.error());
    response.set_content(control.explainJson(*collective, *bytes), "application/json");
  });
}

void addWriting(httplib::Server& server, ControlInterface& control) {
  server.Post("/sched", [&control](const httplib::Request& request, httplib::Response& response) {
    if (request.body.empty())
      return answerError(response, Error{ErrorCode::kInvalidArgument, "the body holds no schedule"});
    auto hash = control.newSched(request.body);
    if (!hash) return answerError(response, hash.error());
    response.set_content(dump({{"ok", true}, {"hash", *hash}}), "application/json");
  });
  server.Post("/drop", [&control](const httplib::Request& request, httplib::Response& response) {
    auto schedule = parameter(request, "schedule");
    if (!schedule) return answerError(response, schedule.error());
    answer(response, control.dropSched(*schedule));
  });
  server.Post("/swap", [&control](const httplib::Request& request, httplib::Response& response) {
    auto collective = collectiveOf(request);
    if (!collective) return answerError(response, collective.error());
    auto schedule = parameter(request, "schedule");
    if (!schedule) return answerError(response, schedule.error());
    answer(response, control.swap(*collective, *schedule));
  });
  server.Post("/exo", [&control](const httplib::Request& request, httplib::Response& response) {
    auto name = parameter(request, "name");
    if (!name) return answerError(response, name.error());
    auto value = parameter(request, "value");
    if (!value) return answerError(response, value.error());
    answer(response, control.setExo(*name, *value));
  });
}

/// One listening HTTP server and the thread that accepts for it.
class Listener {
 public:
  explicit Listener(ControlInterface& control) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_payload_max_length(kPayloadBytesMax);
    server_.set_read_timeout(kTimeoutSeconds);
    server_.set_write_timeout(kTimeoutSeconds);
    server_.set_keep_alive_max_count(1);
    server_.set_keep_alive_timeout(kTimeoutSeconds);
    // The library's default shares a port with any other program that does the same.
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
    server_.set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, std::exception_ptr exception) {
          std::string what = "unknown exception";
          try {
            std::rethrow_exception(exception);
          } catch (const std::exception& caught) {
            what = caught.what();
          } catch (...) {
          }
          answerError(response, Error{ErrorCode::kIo, "the request failed inside: " + what});
        });
    server_.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const std::string what =
          response.status == 404
              ? fmt::format("there is nothing at {} {}", request.method, request.path)
              : fmt::format("the request was refused with HTTP status {}", response.status);
      response.set_content(dump({{"error", {{"code", "http"}, {"message", what}}}}), "application/json");
    });
    addReading(server_, control);
    addWriting(server_, control);
  }

  ~Listener() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void requireToken(const std::string& token) {
    server_.set_pre_routing_handler([digest = base::sha256("Bearer " + token)](
                                        const httplib::Request& request, httplib::Response& response) {
      // Digests are compared, so that neither the length nor the time tells anything about the token.
      if (base::equalInConstantTime(digest, base::sha256(request.get_header_value("Authorization")))) {
        return httplib::Server::HandlerResponse::Unhandled;
      }
      response.status = 401;
      response.set_content("{\"error\":{\"code\":\"http\",\"message\":\"the token is missing or wrong\"}}",
                           "application/json");
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  bool bindUnix(const std::string& path) {
    server_.set_address_family(AF_UNIX);
    return server_.bind_to_port(path,
                                80);  // a port of 0 would mean "any" to the library; unix sockets have none
  }

  int bindTcp(const std::string& host, int port) {
    if (port == 0) return server_.bind_to_any_port(host);
    return server_.bind_to_port(host, port) ? port : -1;
  }

  Status start() {
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    // stop() is ignored before the server runs, so nobody may stop it earlier than that.
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (!server_.is_running()) {
      if (std::chrono::steady_clock::now() > deadline)
        return fail(ErrorCode::kTimeout, "the HTTP server does not start");
      std::this_thread::sleep_for(1ms);
    }
    return {};
  }

 private:
  httplib::Server server_;
  std::thread thread_;
};

class HttpControlServer final : public ControlServer {
 public:
  explicit HttpControlServer(SocketPlace place) : place_(std::move(place)) {}

  Status start(ControlInterface& control, const ControlServerOptions& options) {
    unix_ = std::make_unique<Listener>(control);
    if (!unix_->bindUnix(place_.temporaryPath())) {
      return fail(ErrorCode::kIo, fmt::format("cannot listen at {}", place_.temporaryPath()));
    }
    THESEUS_TRY(unix_->start());
    THESEUS_TRY(place_.publish());
    return options.tcpAddress.empty() ? Status() : startTcp(control, options);
  }

  const std::string& socketPath() const override { return place_.path(); }
  int tcpPort() const override { return tcpPort_; }

 private:
  Status startTcp(ControlInterface& control, const ControlServerOptions& options) {
    if (options.token.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "THESEUS_CTL_ADDRESS is set but THESEUS_CTL_TOKEN is not: there is no TCP without a token");
    }
    const std::size_t colon = options.tcpAddress.rfind(':');
    int port = -1;
    const std::string_view digits = colon == std::string::npos
                                        ? std::string_view()
                                        : std::string_view(options.tcpAddress).substr(colon + 1);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() ||
        port < 0 || port > 65535) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("THESEUS_CTL_ADDRESS=\"{}\" is not HOST:PORT", options.tcpAddress));
    }
    if (port > 0) port += options.tcpPortOffset;
    tcp_ = std::make_unique<Listener>(control);
    tcp_->requireToken(options.token);
    tcpPort_ = tcp_->bindTcp(options.tcpAddress.substr(0, colon), port);
    if (tcpPort_ <= 0) {
      tcpPort_ = 0;
      tcp_.reset();
      return fail(ErrorCode::kIo, fmt::format("cannot listen at {}", options.tcpAddress));
    }
    return tcp_->start();
  }

  SocketPlace place_;
  std::unique_ptr<Listener> unix_;
  std::unique_ptr<Listener> tcp_;
  int tcpPort_ = 0;
};

std::string environmentText(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::unique_ptr<ControlServer> startFromEnvironment(ControlInterface& interface,
                                                    const CommunicatorOptions& options) {
  ControlServerOptions server{"",
                              jobName(options),
                              options.rank,
                              environmentText("THESEUS_CTL_ADDRESS"),
                              environmentText("THESEUS_CTL_TOKEN"),
                              0};
  const std::string localRank = environmentText("LOCAL_RANK");
  std::from_chars(localRank.data(), localRank.data() + localRank.size(), server.tcpPortOffset);
  auto started = startControlServer(interface, server);
  if (!started && !server.tcpAddress.empty()) {
    logLine(fmt::format("rank {}: no control server over TCP: {}", options.rank, started.error().message));
    server.tcpAddress.clear();
    started = startControlServer(interface, server);
  }
  if (!started) {
    logLine(fmt::format("rank {}: no control server, `theseus ctl` cannot reach this rank: {}", options.rank,
                        started.error().message));
    return nullptr;
  }
  if ((*started)->tcpPort() > 0)
    logLine(fmt::format("rank {}: control server at TCP port {}", options.rank, (*started)->tcpPort()));
  return std::move(*started);
}

}  // namespace

Result<std::unique_ptr<ControlServer>> startControlServer(ControlInterface& interface,
                                                          const ControlServerOptions& options) {
  auto place = SocketPlace::claim(options);
  if (!place) return fail(place.error());
  auto server = std::make_unique<HttpControlServer>(std::move(*place));
  THESEUS_TRY(server->start(interface, options));
  return std::unique_ptr<ControlServer>(std::move(server));
}

ControlServerFactory controlServerFactory() { return &startFromEnvironment; }

}  // namespace theseus::runtime

#endif  // THESEUS_HTTP
