// HTTP/1.1 on one thread, one request per connection, everything bounded. What a request means is the handler's to say.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/http/http_message.h"
#include "daemon/http/server_tls.h"

namespace stackd {

// Called on the server's thread for each request, with the way back. It must not block.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

// Counts since the start of the server.
struct HttpCounters {
  std::atomic<int64_t> requests{0};
  std::atomic<int64_t> displaced{0};  // connections that were closed to make room
  std::atomic<int64_t> refused{0};    // connections of hosts that have too many, or make too many
};

struct HttpOptions {
  HttpHandler handler;
  // One more closes the oldest connection that has sent no request yet, of the host that has most of these.
  size_t max_connections = 32;
  // Limits for one host: how many it has at once, how many it makes in a second and in a burst. Not for loopback, which
  // all local users share, and port-forwards.
  size_t max_connections_of_one = 16;
  double connections_per_second = 50;
  double burst_of_connections = 250;
  // Bounds the time for a request to come whole.
  int64_t request_timeout_ms = 5'000;
  // Bounds the time for an answer, or for one piece of it, to be read.
  int64_t answer_timeout_ms = 5'000;
  // Bodies of requests are read up to this size. 0: they are left unread.
  uint64_t max_body_bytes = 0;
  // Stand in every answer.
  HttpFields fields = {};
  // Where set, connections speak TLS, and clients show a certificate that it admits. Outlives the server.
  ServerTls* tls = nullptr;
  // Outlives the server.
  HttpCounters* counters = nullptr;
};

class HttpServer {
 public:
  // `listening`: a TCP socket. Fails with one sentence.
  static Result<std::unique_ptr<HttpServer>> Start(Fd listening, HttpOptions options);
  // Closes all connections, and waits until the handler has dropped all replies.
  ~HttpServer();

  // Accepts nothing more, and waits until what was asked is answered, or until the deadline.
  void Drain(int64_t deadline_ns);

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stackd
