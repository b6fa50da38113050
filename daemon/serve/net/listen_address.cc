#include "daemon/serve/net/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace stackd {
namespace {

std::unexpected<Status> NotUnderstood(const std::string& flag, const std::string& listen) {
  return Error(Code::kInvalidArgument,
               flag + " \"" + listen + "\" is not understood: write it like 127.0.0.1:7443, or none to leave it out");
}

std::unexpected<Status> NotLoopback(const std::string& flag, const std::string& listen) {
  return Error(Code::kInvalidArgument,
               flag + " " + listen +
                   ": anything but a loopback address needs mutual TLS: give --tls-cert, --tls-key and --tls-client-ca");
}

// A flood of connections must not leave others without a place here: a connect to a Unix socket fails then. The kernel
// takes net.core.somaxconn at most, which is 4,096 unless it is set.
constexpr int kBacklog = 4096;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size_bytes = 0;
  bool is_loopback = false;
};

Result<uint16_t> PortOf(const std::string& flag, const std::string& listen, size_t colon) {
  const std::string_view text = std::string_view(listen).substr(colon + 1);
  uint16_t port = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return NotUnderstood(flag, listen);
  return port;
}

Result<Address> ParseAddress(const std::string& flag, const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon == 0) return NotUnderstood(flag, listen);
  std::string host = listen.substr(0, colon);
  const Result<uint16_t> port = PortOf(flag, listen, colon);
  if (!port) return std::unexpected(port.error());
  if (host == "localhost") host = "127.0.0.1";

  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.bytes);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(*port);
    address.size_bytes = sizeof(*v4);
    address.is_loopback = (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    return address;
  }
  // A name may stand for other addresses tomorrow.
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return NotUnderstood(flag, listen);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6->sin6_addr) != 1) return NotUnderstood(flag, listen);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(*port);
  address.size_bytes = sizeof(*v6);
  address.is_loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  return address;
}

std::string AddressText(const sockaddr_storage& bytes) {
  char host[INET6_ADDRSTRLEN] = "";
  if (bytes.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(bytes);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    return std::string(host) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bytes);
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
  return "[" + std::string(host) + "]:" + std::to_string(ntohs(v6.sin6_port));
}

// New files have mode 0600 at most: the socket must never be open to others, not even between bind and chmod.
class PrivateUmask {
 public:
  PrivateUmask() : before_(umask(0177)) {}
  ~PrivateUmask() { umask(before_); }

 private:
  mode_t before_;
};

sockaddr_un PathAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

}  // namespace

Result<ListeningSocket> ListenAt(const std::string& flag, const std::string& listen, bool has_tls) {
  Result<Address> wanted = ParseAddress(flag, listen);
  if (!wanted) return std::unexpected(wanted.error());
  if (!wanted->is_loopback && !has_tls) return NotLoopback(flag, listen);
  ListeningSocket socket_there{.fd = Fd(socket(wanted->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
                               .address = {}};
  const int fd = socket_there.fd.get();
  const int on = 1;
  // Not SO_REUSEPORT: a second daemon would quietly take half of the calls.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  auto* address = reinterpret_cast<sockaddr*>(&wanted->bytes);
  if (fd < 0 || bind(fd, address, wanted->size_bytes) != 0 || ::listen(fd, kBacklog) != 0) {
    const std::string reason = errno == EADDRINUSE ? "another program listens there; choose another port" : strerror(errno);
    return Error(Code::kUnavailable, flag + ": cannot listen on " + listen + ": " + reason);
  }
  sockaddr_storage bound{};
  socklen_t size_bytes = sizeof(bound);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size_bytes);
  socket_there.address = AddressText(bound);
  return socket_there;
}

Result<Fd> ListenAtPath(const std::string& path) {
  const auto failed = [&] {
    return Error(Code::kUnavailable,
                 "cannot make the socket " + path + ": " + strerror(errno) + "; is the folder writable?");
  };
  const sockaddr_un address = PathAddress(path);
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return failed();
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return failed();
  {
    PrivateUmask only_owner;
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return failed();
  }
  if (listen(fd.get(), kBacklog) != 0) return failed();
  return fd;
}

Result<std::string> CheckSocketPath(const std::string& dir) {
  std::string path = dir + "/api.sock";
  const sockaddr_un address = PathAddress(path);
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kInvalidArgument, "the path " + path + " is too long for a socket (" + std::to_string(path.size()) +
                                             " of " + std::to_string(sizeof(address.sun_path) - 1) +
                                             " bytes): choose a shorter --dir");
  }
  struct stat file;
  if (lstat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return Error(Code::kAlreadyExists, path + " is there and is not a socket: remove it, or choose another --dir");
  }
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN) {
    return Error(Code::kAlreadyExists, "another stackd serves " + path + ": stop it, or choose another --dir");
  }
  return path;
}

}  // namespace stackd
