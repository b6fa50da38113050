// One connection of HttpServer: it reads one request and sends its answer.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>

#include "daemon/http/http_message.h"

struct ssl_st;
namespace boost::asio::ssl {
class context;
}

namespace stackd {

// Kept alive by the operation that runs, and by the reply. Its methods are called on the server's thread.
class HttpConnection {
 public:
  struct Limits {
    int64_t request_ms;
    int64_t answer_ms;
    uint64_t body_bytes;       // 0: bodies are left unread
    const HttpFields* fields;  // of every answer; they outlive the connection
  };

  // The server, which outlives its connections.
  class Owner {
   public:
    virtual void Add(HttpConnection* connection) = 0;
    // The connection has ended, or has been closed.
    virtual void Remove(HttpConnection* connection) = 0;
    virtual void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
    // With an error of OpenSSL, as ERR_get_error() gives it.
    virtual void OnFailedHandshake(const ssl_st* connection, int openssl_error) = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~HttpConnection() = default;

  static void Open(Owner* owner, boost::asio::ip::tcp::socket socket, const Limits& limits);
  static void OpenTls(Owner* owner, boost::asio::ip::tcp::socket socket, const Limits& limits,
                      std::shared_ptr<boost::asio::ssl::context> context);

  const boost::asio::ip::address& host() const { return host_; }
  // Whether its request has not come yet, or its answer has left: then it may be closed to make room.
  bool is_idle() const { return is_idle_; }

  virtual void Close() = 0;

 protected:
  boost::asio::ip::address host_;
  bool is_idle_ = true;
};

}  // namespace stackd
