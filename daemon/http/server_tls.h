// Mutual TLS for HttpServer: a client shows a certificate of a known authority, or there is no connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/http/http_message.h"

struct ssl_st;
namespace boost::asio::ssl {
class context;
}

namespace stackd {

// PEM, and a number that changes with it.
struct TlsIdentity {
  int64_t generation = 0;
  std::string key_and_chain;
  std::string client_ca;
};

// Thread-safe.
class ServerTls {
 public:
  // `identity` is asked for each connection. `admits` is called in the handshake with the client's certificate, already
  // verified; false ends it. `refused` is told why another handshake failed: "certificate verify failed".
  ServerTls(std::function<TlsIdentity()> identity, std::function<bool(const HttpPeer&)> admits,
            std::function<void(std::string reason)> refused);

  // The context of a new connection. An identity with a fault changes nothing; nullptr if the first has one.
  std::shared_ptr<boost::asio::ssl::context> Context();

  // After a handshake that failed with an error of OpenSSL.
  void OnFailedHandshake(const ssl_st* connection, int openssl_error) const;

 private:
  const std::function<TlsIdentity()> identity_;
  const std::function<bool(const HttpPeer&)> admits_;
  const std::function<void(std::string reason)> refused_;
  std::mutex mutex_;
  int64_t generation_ = -1;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

// Whether a connection is of a ServerTls: it speaks HTTP/1.1, and not HTTP/2 as those of gRPC.
bool IsOfServerTls(const ssl_st* connection);

// Reads the names of a client's certificate (SSL_get_peer_certificate, or that of a verification under way). nullptr: it
// has none.
HttpPeer PeerOfCertificate(void* x509);

}  // namespace stackd
