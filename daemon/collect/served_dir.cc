#include "daemon/collect/served_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "stackd/wire.h"

namespace stackd {
namespace {

Result<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kInvalidArgument, "the path of a socket has at most " +
                                             std::to_string(sizeof(address.sun_path) - 1) + " bytes, and " + path +
                                             " has " + std::to_string(path.size()) + ": choose a shorter --dir");
  }
  path.copy(address.sun_path, path.size());
  return address;
}

// Tells a live daemon from a socket that a dead one left behind.
Result<Fd> LockDir(const std::string& dir) {
  if (mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) {
    return Error(Code::kFailedPrecondition,
                 "cannot make the folder " + dir + ": " + strerror(errno) + ". Make it, or choose another with --dir");
  }
  std::string path = dir + "/stackd.lock";
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) {
    return Error(Code::kFailedPrecondition, "cannot write in " + dir + ": " + strerror(errno) + ". Give uid " +
                                                std::to_string(geteuid()) +
                                                " the right to, or choose another folder with --dir");
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(Code::kAlreadyExists, "another stackd serves " + dir + ": stop it, or choose another folder with --dir");
  }
  return lock;
}

Result<Fd> Listen(const std::string& path, const sockaddr_un& address) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  unlink(path.c_str());
  bool listening = fd.valid() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                   // Agents run as any user; what they may do is register themselves. Not through a link that another
                   // user put there meanwhile.
                   fchmodat(AT_FDCWD, path.c_str(), 0666, AT_SYMLINK_NOFOLLOW) == 0 && listen(fd.get(), 1024) == 0;
  if (!listening) return Error(Code::kFailedPrecondition, "cannot listen on " + path + ": " + strerror(errno));
  return fd;
}

}  // namespace

Result<ServedDir> ServeDir(const std::string& dir) {
  const std::string path = dir + "/" STACKD_SOCKET_NAME;
  const auto address = SocketAddress(path);
  if (!address) return std::unexpected(address.error());
  auto lock = LockDir(dir);
  if (!lock) return std::unexpected(lock.error());
  auto listener = Listen(path, *address);
  if (!listener) return std::unexpected(listener.error());
  return ServedDir{std::move(*lock), std::move(*listener)};
}

}  // namespace stackd
