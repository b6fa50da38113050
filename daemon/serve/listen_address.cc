#include "daemon/serve/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

std::unexpected<Status> NotUnderstood(const std::string& listen) {
  return Error(
      Code::kInvalidArgument,
      "--listen \"" + listen + "\" is not understood: write it like 127.0.0.1:7443, or none for the Unix socket only");
}

std::unexpected<Status> NotLoopback(const std::string& listen) {
  return Error(
      Code::kInvalidArgument,
      "--listen " + listen + ": only loopback addresses are served; mTLS for others is not available in this version");
}

// Binds and lets go, because gRPC does not say why it could not.
Result<void> TryBind(const std::string& listen, const sockaddr* address, socklen_t size_bytes) {
  Fd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (fd.valid() && bind(fd.get(), address, size_bytes) == 0) return {};
  std::string reason = errno == EADDRINUSE ? "another program listens there; choose another port" : strerror(errno);
  return Error(Code::kUnavailable, "cannot listen on " + listen + ": " + reason);
}

}  // namespace

Result<std::string> CheckListenAddress(const std::string& listen) {
  size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon == 0) return NotUnderstood(listen);
  std::string host = listen.substr(0, colon);
  std::string_view port_text = std::string_view(listen).substr(colon + 1);
  uint16_t port = 0;
  auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size()) return NotUnderstood(listen);
  if (host == "localhost") host = "127.0.0.1";

  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    if ((ntohl(v4.sin_addr.s_addr) >> 24) != IN_LOOPBACKNET) return NotLoopback(listen);
    Result<void> free = TryBind(listen, reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
    if (!free) return std::unexpected(free.error());
    return host + ":" + std::to_string(port);
  }
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return NotLoopback(listen);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1) return NotUnderstood(listen);
  if (!IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) return NotLoopback(listen);
  Result<void> free = TryBind(listen, reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
  if (!free) return std::unexpected(free.error());
  return host + ":" + std::to_string(port);
}

Result<std::string> CheckSocketPath(const std::string& dir) {
  std::string path = dir + "/api.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kInvalidArgument, "the path " + path + " is too long for a socket (" + std::to_string(path.size()) +
                                             " of " + std::to_string(sizeof(address.sun_path) - 1) +
                                             " bytes): choose a shorter --dir");
  }
  memcpy(address.sun_path, path.c_str(), path.size());
  struct stat file;
  if (lstat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
    return Error(Code::kAlreadyExists, path + " is there and is not a socket: remove it, or choose another --dir");
  }
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN) {
    return Error(Code::kAlreadyExists, "another stackd serves " + path + ": stop it, or choose another --dir");
  }
  return path;
}

}  // namespace stackd
