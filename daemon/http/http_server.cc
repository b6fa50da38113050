#include "daemon/http/http_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/token_bucket.h"
#include "daemon/http/http_connection.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Waits so long for the next try where there are no file descriptors to accept with.
constexpr auto kRest = std::chrono::milliseconds(100);
constexpr size_t kMaxSources = 4096;

// Finds a client whose machine has gone, also where nothing is written. Programs that the daemon starts do not get the fd.
void SetOptions(int fd) {
  const int on = 1, idle_s = 60, interval_s = 20, probes = 1;
  const unsigned unacknowledged_ms = 80'000;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// Takes the network of an IPv6 address: one host has as many addresses as it likes in it.
asio::ip::address SourceOf(const asio::ip::address& host) {
  if (!host.is_v6() || host.to_v6().is_v4_mapped()) return host;
  return asio::ip::network_v6(host.to_v6(), 64).network();
}

}  // namespace

struct HttpServer::State final : HttpConnection::Owner {
  explicit State(HttpOptions server_options) : options(std::move(server_options)) {}
  ~State() {
    asio::post(io, [this] {
      StopAccepting();
      while (!connections.empty()) connections.front()->Close();
    });
    if (thread.joinable()) thread.join();
  }

  void Drain(int64_t deadline_ns);
  void StopAccepting();

  void Accept();
  bool Admit(const asio::ip::tcp::socket& socket);
  bool MakesTooMany(const asio::ip::address& source);
  void Refuse(const asio::ip::address& source, const char* why);
  bool MakeRoom();
  void Open(asio::ip::tcp::socket socket);

  void Add(HttpConnection* connection) override { connections.push_back(connection); }
  void Remove(HttpConnection* connection) override {
    connections.remove(connection);
    TellIfDrained();
  }
  void TellIfDrained() {
    if (is_ending && connections.empty() && !std::exchange(is_drained, true)) drained.set_value();
  }
  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    ++options.counters->requests;
    options.handler(std::move(request), std::move(reply));
  }
  void OnFailedHandshake(const ssl_st* connection, int openssl_error) override {
    options.tls->OnFailedHandshake(connection, openssl_error);
  }

  const HttpOptions options;
  std::map<asio::ip::address, TokenBucket> buckets;  // of the thread
  std::list<HttpConnection*> connections;            // the oldest first; of the thread
  asio::io_context io{1};
  asio::ip::tcp::acceptor acceptor{io};
  asio::steady_timer rest{io};
  int64_t told_refused_ns = 0;  // of the thread, as are the next two
  bool is_ending = false;       // accepts nothing more
  bool is_drained = false;      // and has no connection left
  std::promise<void> drained;
  std::thread thread;
};

void HttpServer::State::Accept() {
  acceptor.async_accept([this](error_code error, asio::ip::tcp::socket socket) {
    if (is_ending) return;
    if (error) {
      rest.expires_after(kRest);
      rest.async_wait([this](error_code stopped) {
        if (!stopped && !is_ending) Accept();
      });
      return;
    }
    if (Admit(socket) && (connections.size() < options.max_connections || MakeRoom())) Open(std::move(socket));
    Accept();
  });
}

bool HttpServer::State::Admit(const asio::ip::tcp::socket& socket) {
  error_code error;
  const asio::ip::address host = socket.remote_endpoint(error).address();
  if (error || host.is_loopback()) return !error;
  const asio::ip::address source = SourceOf(host);
  const auto is_its = [&](const HttpConnection* connection) { return SourceOf(connection->host()) == source; };
  const auto of_it = static_cast<size_t>(std::count_if(connections.begin(), connections.end(), is_its));
  if (of_it >= options.max_connections_of_one) {
    Refuse(source, "a connection is refused: its host has too many");
  } else if (MakesTooMany(source)) {
    Refuse(source, "a connection is refused: its host makes too many in a second");
  } else {
    return true;
  }
  return false;
}

// Handshakes are what a connection costs, and one thread makes all.
bool HttpServer::State::MakesTooMany(const asio::ip::address& source) {
  const int64_t now_ns = MonotonicNs();
  BoundSources(&buckets, kMaxSources, now_ns, [](const TokenBucket& bucket) { return bucket; });
  const TokenBucket full(options.connections_per_second, options.burst_of_connections);
  return buckets.try_emplace(source, full).first->second.TakeOrWaitNs(now_ns) != 0;
}

void HttpServer::State::Refuse(const asio::ip::address& source, const char* why) {
  ++options.counters->refused;
  const int64_t now_ns = MonotonicNs();
  if (now_ns - told_refused_ns < kNsPerSecond) return;
  told_refused_ns = now_ns;
  Log(LogLevel::kWarning, why, {{"from", source.to_string()}, {"refused_since_start", options.counters->refused.load()}});
}

void HttpServer::State::StopAccepting() {
  is_ending = true;
  error_code ignored;
  acceptor.close(ignored);
  rest.cancel();
}

void HttpServer::State::Drain(int64_t deadline_ns) {
  asio::post(io, [this] {
    StopAccepting();
    const std::list<HttpConnection*> all = connections;
    for (HttpConnection* connection : all) {
      if (connection->is_idle()) connection->Close();
    }
    TellIfDrained();
  });
  drained.get_future().wait_for(std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs())));
}

void HttpServer::State::Open(asio::ip::tcp::socket socket) {
  SetOptions(socket.native_handle());
  const HttpConnection::Limits limits{.request_ms = options.request_timeout_ms,
                                      .answer_ms = options.answer_timeout_ms,
                                      .body_bytes = options.max_body_bytes,
                                      .fields = &options.fields};
  if (options.tls == nullptr) {
    HttpConnection::Open(this, std::move(socket), limits);
  } else if (auto context = options.tls->Context(); context != nullptr) {
    HttpConnection::OpenTls(this, std::move(socket), limits, std::move(context));
  }
}

// A client with a request to make has made it before many others come. Connections without one are idle, or of a flood.
bool HttpServer::State::MakeRoom() {
  ++options.counters->displaced;
  std::map<asio::ip::address, size_t> idle_by_host;
  for (const HttpConnection* connection : connections) {
    if (connection->is_idle()) ++idle_by_host[connection->host()];
  }
  if (idle_by_host.empty()) return false;
  const auto has_more = [](const auto& one, const auto& other) { return one.second < other.second; };
  const asio::ip::address greediest = std::max_element(idle_by_host.begin(), idle_by_host.end(), has_more)->first;
  const auto is_its = [&](const HttpConnection* connection) {
    return connection->is_idle() && connection->host() == greediest;
  };
  (*std::find_if(connections.begin(), connections.end(), is_its))->Close();
  return true;
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Start(Fd listening, HttpOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  error_code error;
  sockaddr address{};
  socklen_t size_bytes = sizeof(address);
  getsockname(listening.get(), &address, &size_bytes);
  const auto protocol = address.sa_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
  state->acceptor.assign(protocol, listening.get(), error);
  if (error) return Error(Code::kUnavailable, "cannot serve HTTP: " + error.message());
  listening.Release();
  state->Accept();
  state->thread = std::thread([io = &state->io] { io->run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

void HttpServer::Drain(int64_t deadline_ns) { state_->Drain(deadline_ns); }

}  // namespace stackd
