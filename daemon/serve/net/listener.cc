#include "daemon/serve/net/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/server_posix.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/log/log.h"
#include "daemon/serve/net/socket_owner.h"

namespace stackd {
namespace {

// A connection that does nothing costs about 20 KB.
constexpr size_t kMaxUnixConnections = 1024;
constexpr size_t kMaxTcpConnections = 2048;
// Limit for one machine or user, which must not have all of them. Not for loopback, an address that all local users share.
constexpr size_t kMaxConnectionsOfOne = 512;
// With no fd left, accept() fails for as long as there are connections to accept.
constexpr int kPauseMs = 100;
// Connections of one user or host. One whose connection is ended has begun up to 1,000 calls by it.
constexpr double kConnectionsPerSecond = 100, kMostConnectionsAtOnce = 2048;
constexpr int kCostOfAnEnded = 64;
constexpr size_t kMaxSources = 4096;
constexpr char kNoNumber[] = "a connection is refused: there is no number for it";
constexpr int64_t kTellRefusedEveryNs = kNsPerSecond;
// For as long a connection that has ended may keep its place when there are too many.
constexpr int64_t kLookAgainNs = 50 * kNsPerMs;

ino_t InodeOf(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

ino_t InodeOf(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

// " uid:1000", the user at the other end of a connection from this machine; "" where the kernel does not tell.
std::string OwnerOf(const sockaddr_storage& peer, int fd) {
  const std::optional<uid_t> owner = OwnerOfPeer(peer, fd);
  return owner ? " uid:" + std::to_string(*owner) : "";
}

std::string HostOf(const sockaddr_storage& address, bool* is_loopback) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    *is_loopback = (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    *is_loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  }
  return text;
}

}  // namespace

Listener::Listener(Fd unix_socket, std::string unix_path)
    : unix_socket_(std::move(unix_socket)),
      unix_path_(std::move(unix_path)),
      unix_inode_(InodeOf(unix_path_)),
      stop_(eventfd(0, EFD_CLOEXEC)) {}

Listener::~Listener() { Stop(); }

void Listener::AddTcp(Fd tcp_socket, std::unique_ptr<Acceptor> acceptor, bool has_tls) {
  has_tls_ = has_tls;
  tcp_socket_ = std::move(tcp_socket);
  acceptor_ = std::move(acceptor);
}

void Listener::Start(grpc::Server* server, std::function<bool(const UnixPeer&)> has_role) {
  server_ = server;
  has_role_ = std::move(has_role);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  // Another daemon may have taken its place by now.
  const ino_t mine = std::exchange(unix_inode_, 0);
  if (mine != 0 && InodeOf(unix_path_) == mine) unlink(unix_path_.c_str());
}

std::optional<UnixPeer> Listener::PeerOf(const std::string& grpc_peer) const {
  constexpr std::string_view kFd = "fd:";
  if (!grpc_peer.starts_with(kFd)) return std::nullopt;
  int number = -1;
  std::from_chars(grpc_peer.data() + kFd.size(), grpc_peer.data() + grpc_peer.size(), number);
  std::lock_guard lock(mutex_);
  const auto found = numbers_.find(number);
  if (found == numbers_.end()) return std::nullopt;
  return found->second.peer;
}

void Listener::Run() {
  pollfd waited[] = {{stop_.get(), POLLIN, 0}, {unix_socket_.get(), POLLIN, 0}, {tcp_socket_.get(), POLLIN, 0}};
  while (true) {
    const int ready = poll(waited, std::size(waited), refused_ > 0 ? kTellRefusedEveryNs / kNsPerMs : -1);
    TellRefused();
    if (ready <= 0) continue;
    if (waited[0].revents != 0) return;
    if (waited[1].revents != 0) AcceptUnix();
    if (waited[2].revents != 0) AcceptTcp();
  }
}

bool Listener::Admit(std::map<int, Connection>* connections, int fd, const std::string& from, bool is_anybody) {
  const size_t limit = connections == &unix_connections_ ? kMaxUnixConnections : kMaxTcpConnections;
  const auto of_one = [&] {
    return static_cast<size_t>(std::count_if(connections->begin(), connections->end(),
                                             [&](const auto& entry) { return entry.second.from == from; }));
  };
  const auto is_full = [&] { return connections->size() >= limit || (!is_anybody && of_one() >= kMaxConnectionsOfOne); };
  // A look at each of them takes a millisecond, in which a flood would fill the queue of the socket.
  int64_t& looked_ns = looked_ns_[connections];
  if (is_full() && MonotonicNs() - looked_ns >= kLookAgainNs) {
    std::erase_if(*connections, [](const auto& entry) { return InodeOf(entry.first) != entry.second.inode; });
    looked_ns = MonotonicNs();
  }
  if (is_full()) {
    Refuse("a connection is refused: there are too many", from);
    return false;
  }
  (*connections)[fd] = {InodeOf(fd), from};
  return true;
}

Listener::Source& Listener::SourceOf(const std::string& from) {
  BoundSources(&sources_, kMaxSources, MonotonicNs(), [](const Source& source) { return source.connections; });
  return sources_
      .try_emplace(from, Source{.connections = TokenBucket(kConnectionsPerSecond, kMostConnectionsAtOnce),
                                .ended = std::make_shared<std::atomic<int64_t>>(0)})
      .first->second;
}

bool Listener::Charge(const std::string& from) {
  const int64_t now_ns = MonotonicNs();
  Source& source = SourceOf(from);
  for (const int64_t ended = *source.ended; source.charged < ended; ++source.charged) {
    for (int i = 0; i < kCostOfAnEnded; ++i) source.connections.TakeOrWaitNs(now_ns);
  }
  if (source.connections.TakeOrWaitNs(now_ns) == 0) return true;
  Refuse("a connection is refused: its caller makes too many", from);
  return false;
}

void Listener::Refuse(const char* why, const std::string& from) {
  ++refused_;
  why_refused_ = why;
  refused_from_ = from;
  TellRefused();
}

void Listener::TellRefused() {
  const int64_t now_ns = MonotonicNs();
  if (refused_ == 0 || now_ns - told_ns_ < kTellRefusedEveryNs) return;
  told_ns_ = now_ns;
  Log(LogLevel::kWarning, why_refused_, {{"from", refused_from_}, {"count", std::exchange(refused_, 0)}});
}

Fd Listener::WithNumberOf(const UnixPeer& peer, Fd fd) {
  const bool is_shared = has_role_ && !has_role_(peer);
  std::lock_guard lock(mutex_);
  while (fd.valid()) {
    Number& number = numbers_.try_emplace(fd.get(), Number{peer, is_shared}).first->second;
    if (number.is_shared == is_shared && (is_shared || number.peer == peer)) {
      number.peer = peer;
      break;
    }
    fd = Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, fd.get() + 1));
  }
  return fd;
}

void Listener::AcceptUnix() {
  Fd fd(accept4(unix_socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, kPauseMs);
    return;
  }
  ucred credentials{};
  socklen_t size_bytes = sizeof(credentials);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size_bytes) != 0) return;
  const UnixPeer peer{.uid = credentials.uid, .is_elsewhere = credentials.pid == 0};
  if (!Charge(peer.Name())) return;
  fd = WithNumberOf(peer, std::move(fd));
  if (!fd.valid()) return Refuse(kNoNumber, peer.Name());
  if (!Admit(&unix_connections_, fd.get(), peer.Name(), false)) return;
  if (!GuardConnection(fd.get(), SourceOf(peer.Name()).ended)) return Refuse(kNoNumber, peer.Name());
  grpc::AddInsecureChannelFromFd(server_, fd.Release());
}

void Listener::AcceptTcp() {
  sockaddr_storage address{};
  socklen_t size_bytes = sizeof(address);
  Fd fd(accept4(tcp_socket_.get(), reinterpret_cast<sockaddr*>(&address), &size_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) poll(nullptr, 0, kPauseMs);
    return;
  }
  bool is_loopback = false;
  std::string host = HostOf(address, &is_loopback);
  if (is_loopback) host += OwnerOf(address, fd.get());
  if (!Charge(host)) return;
  if (!Admit(&tcp_connections_, fd.get(), host, is_loopback)) return;
  // What comes with TLS is looked at behind it.
  if (!has_tls_ && !GuardConnection(fd.get(), SourceOf(host).ended)) return Refuse(kNoNumber, host);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Acceptor::NewConnectionParameters connection;
  connection.listener_fd = tcp_socket_.get();
  connection.fd = fd.Release();
  acceptor_->HandleNewConnection(&connection);
}

}  // namespace stackd
