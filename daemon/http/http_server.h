// GET over HTTP/1.1 for scrapers and probes, on one thread: a few pages, one request per connection, everything bounded.
// Its pages are public, so it authenticates no client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

struct HttpAnswer {
  unsigned status = 200;
  std::string body;
};

struct HttpPage {
  std::string content_type;
  // Called on the server's thread, with what follows the path of a page that ends with "/", decoded; else with "".
  std::function<HttpAnswer(const std::string& rest)> answer;
};

struct HttpOptions {
  std::map<std::string, HttpPage> pages;  // by path: "/metrics", or "/process/" for all below it
  // Above this the oldest connection of the host with most is closed.
  size_t max_connections = 32;
  // Limit for a request to come whole, and for its answer to be read.
  int64_t timeout_ms = 5'000;
};

class HttpServer {
 public:
  // `listening`: a TCP socket. Fails with one sentence.
  static Result<std::unique_ptr<HttpServer>> Start(Fd listening, HttpOptions options);
  ~HttpServer();

  // Since start.
  int64_t requests() const;
  int64_t displaced_connections() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stackd
