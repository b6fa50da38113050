// Accepts connections for gRPC. Knows which user is at the other end of the Unix socket, which gRPC does not tell, and
// bounds how many connections there are.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "daemon/access/access_rules.h"
#include "daemon/base/fd.h"
#include "daemon/base/token_bucket.h"
#include "daemon/serve/net/guarded_connections.h"

namespace stackd {

class Listener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // `unix_path` is that of `unix_socket`, removed at the end.
  Listener(Fd unix_socket, std::string unix_path);
  ~Listener();

  // Both before Start. `acceptor`: of the server, with the credentials of that socket; `has_tls`: whether those are TLS.
  void AddTcp(Fd tcp_socket, std::unique_ptr<Acceptor> acceptor, bool has_tls);
  // `has_role`: whether a user may do anything now; without it, each may.
  void Start(grpc::Server* server, std::function<bool(const UnixPeer&)> has_role = {});
  // Accepts nothing more. Before the server is shut down.
  void Stop();

  // The user that made the connection that gRPC calls "fd:N".
  std::optional<UnixPeer> PeerOf(const std::string& grpc_peer) const;

 private:
  // A socket has another inode than those that had its number before.
  struct Connection {
    ino_t inode = 0;
    std::string from;
  };
  // The user that a connection's number belongs to.
  struct Number {
    UnixPeer peer;           // the last one
    bool is_shared = false;  // by all who have no role
  };

  void Run();
  void AcceptUnix();
  void AcceptTcp();
  // Duplicates `fd` to a number that never was another user's. A call that outlives its connection must not be taken for
  // one of the user that got the number next. Users without a role share their numbers, for there may be very many: taken
  // for each other they gain nothing.
  Fd WithNumberOf(const UnixPeer& peer, Fd fd);
  // Limit for the connections that a user or a host may make.
  struct Source {
    TokenBucket connections;
    EndedCount ended;     // by their guards
    int64_t charged = 0;  // of those
  };

  // Whether there is room for another connection. `from`: a user or a host; `is_anybody`: it does not tell callers apart.
  bool Admit(std::map<int, Connection>* connections, int fd, const std::string& from, bool is_anybody);
  // Whether `from` may make another connection now. A source whose connections were ended may make few.
  bool Charge(const std::string& from);
  Source& SourceOf(const std::string& from);
  // Writes one line a second.
  void Refuse(const char* why, const std::string& from);
  void TellRefused();

  const Fd unix_socket_;
  const std::string unix_path_;
  ino_t unix_inode_ = 0;
  Fd tcp_socket_;
  bool has_tls_ = false;
  std::unique_ptr<Acceptor> acceptor_;
  Fd stop_;
  grpc::Server* server_ = nullptr;
  std::function<bool(const UnixPeer&)> has_role_;
  std::thread thread_;
  // Used by the thread alone.
  std::map<int, Connection> unix_connections_, tcp_connections_;
  std::map<const void*, int64_t> looked_ns_;  // when it was looked which of these have ended
  std::map<std::string, Source> sources_;
  int64_t refused_ = 0;  // and not told yet
  int64_t told_ns_ = 0;
  const char* why_refused_ = "";
  std::string refused_from_;

  mutable std::mutex mutex_;
  std::map<int, Number> numbers_;
};

}  // namespace stackd
