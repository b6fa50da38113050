// A request over HTTP, and the way back.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stackd {

// What the connection proves about the client.
struct HttpPeer {
  bool is_loopback = false;
  bool has_certificate = false;
  // Subject alternative names of the certificate.
  std::vector<std::string> uris, dns_names;
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // "/process/a%20b?x=1"
  // By name in small letters. A name that comes twice has its last value.
  std::map<std::string, std::string, std::less<>> fields;
  std::string body;
  HttpPeer peer;

  // Returns "" for a field that did not come.
  std::string_view Field(std::string_view name) const;
  // Returns the target without its query.
  std::string_view Path() const;
};

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpAnswer {
  unsigned status = 200;
  std::string body;
  HttpFields fields = {};
};

// The way back of one request. Thread-safe. A client that has gone is no error: what is sent to it is dropped. A reply that
// is dropped before its end closes the connection.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  // Sends the whole answer. `kept` is released when it has left, or never will.
  virtual void Send(HttpAnswer answer, std::shared_ptr<void> kept) = 0;

  // Called on the server's thread when what was given has been sent; false: the client has gone.
  using Written = std::function<void(bool ok)>;

  // Begins an answer in pieces; its body is not sent. `gone` is called, at most once and on the server's thread, if the
  // client goes before End. Each of these may follow when `written` of the one before was called.
  virtual void Begin(HttpAnswer head, std::function<void()> gone, Written written) = 0;
  virtual void Write(std::string piece, Written written) = 0;
  virtual void End() = 0;
};

// Turns "a%20b" into "a b". A '%' without two hex digits stays as it is.
std::string DecodePercent(std::string_view text);

}  // namespace stackd
