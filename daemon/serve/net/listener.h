// Accepts connections for gRPC: knows who is at the other end of the Unix socket, which gRPC does not tell, and bounds how
// many there are.
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
#include "daemon/access/token_bucket.h"
#include "daemon/base/fd.h"
#include "daemon/serve/net/guarded_connections.h"

namespace stackd {

class Listener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // `unix_path`: of `unix_socket`, removed at the end.
  Listener(Fd unix_socket, std::string unix_path);
  ~Listener();

  // Both before Start. `acceptor`: of the server, with the credentials of that socket; `has_tls`: whether those are TLS.
  void AddTcp(Fd tcp_socket, std::unique_ptr<Acceptor> acceptor, bool has_tls);
  // `has_role`: whether a user may do anything now; without it, each may.
  void Start(grpc::Server* server, std::function<bool(const UnixPeer&)> has_role = {});
  // Accepts nothing more. Before the server is shut down.
  void Stop();

  // Who made the connection that gRPC calls "fd:N".
  std::optional<UnixPeer> PeerOf(const std::string& grpc_peer) const;

 private:
  // A socket has another inode than those that had its number before.
  struct Connection {
    ino_t inode = 0;
    std::string from;
  };
  // Of a connection: whose it may be.
  struct Number {
    UnixPeer peer;           // the last one
    bool is_shared = false;  // by all who have no role
  };

  void Run();
  void AcceptUnix();
  void AcceptTcp();
  // A duplicate of `fd` whose number never was one of another user: a call that outlives its connection must not be taken
  // for one of whoever got the number next. Users without a role share theirs, for there may be very many: taken for
  // another one of them nobody gains anything.
  Fd WithNumberOf(const UnixPeer& peer, Fd fd);
  // Of a user or a host: how many connections it may make.
  struct Source {
    TokenBucket connections;
    EndedCount ended;     // by their guards
    int64_t charged = 0;  // of those
  };

  // Whether there is room for another one. `from`: a user or a host; `is_anybody`: it does not tell callers apart.
  bool Admit(std::map<int, Connection>* connections, int fd, const std::string& from, bool is_anybody);
  // Whether `from` may make another connection now. Whose connections were ended may make few.
  bool Charge(const std::string& from);
  Source& SourceOf(const std::string& from);
  // One line a second.
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
  // Of the thread.
  std::map<int, Connection> unix_connections_, tcp_connections_;
  std::map<std::string, Source> sources_;
  int64_t refused_ = 0;  // and not told yet
  int64_t told_ns_ = 0;
  const char* why_refused_ = "";
  std::string refused_from_;

  mutable std::mutex mutex_;
  std::map<int, Number> numbers_;
};

}  // namespace stackd
