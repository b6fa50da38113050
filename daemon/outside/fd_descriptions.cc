#include "daemon/outside/fd_descriptions.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>

#include "daemon/base/printable.h"
#include "daemon/outside/procfs_text.h"
#include "daemon/outside/socket_table.h"
#include "stackd/wire.h"

namespace stackd {
namespace {

constexpr size_t kMaxFds = 256;
// Limits how many fds of the process are looked at for the other end of a pipe, or for what an epoll instance watches.
constexpr size_t kMaxLookedAt = 1024;

std::string LinkOf(const std::string& path, int32_t fd) {
  char target[PATH_MAX];
  const ssize_t length = readlink((path + "/fd/" + std::to_string(fd)).c_str(), target, sizeof(target));
  return {target, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

std::string InfoOf(const std::string& path, int32_t fd) {
  return "\n" + ReadProcfsText(path + "/fdinfo/" + std::to_string(fd));
}

// One more than kMaxLookedAt if there are more.
std::vector<int32_t> ListFds(const std::string& path) {
  std::vector<int32_t> fds;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir((path + "/fd").c_str()), closedir);
  if (folder == nullptr) return fds;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    fds.push_back(static_cast<int32_t>(atol(entry->d_name)));
    if (fds.size() > kMaxLookedAt) break;
  }
  return fds;
}

// O_RDONLY, O_WRONLY, ...
int AccessMode(const std::string& path, int32_t fd) {
  const std::string flags(FieldOfStatus(InfoOf(path, fd), "flags"));
  return static_cast<int>(strtol(flags.c_str(), nullptr, 8)) & O_ACCMODE;
}

bool AreEnds(int mode, int other) {
  return (mode == O_RDONLY && other == O_WRONLY) || (mode == O_WRONLY && other == O_RDONLY);
}

int32_t OtherEndOf(const std::string& path, const WaitedFd& pipe, const std::vector<int32_t>& fds) {
  const int mode = AccessMode(path, pipe.fd);
  for (const int32_t fd : fds) {
    if (fd != pipe.fd && LinkOf(path, fd) == pipe.name && AreEnds(mode, AccessMode(path, fd))) return fd;
  }
  return -1;
}

void AddWatched(const std::string& path, WaitedFd* epoll) {
  constexpr std::string_view kKey = "\ntfd:";
  const std::string info = InfoOf(path, epoll->fd);
  for (size_t at = info.find(kKey); at != std::string::npos; at = info.find(kKey, at + 1)) {
    if (epoll->watched.size() < STACKD_MAX_WATCHED_FDS) {
      epoll->watched.push_back(static_cast<int32_t>(strtol(info.c_str() + at + kKey.size(), nullptr, 10)));
    }
    epoll->watched_count++;
  }
}

SocketNames ReadSockets(const std::string& path) {
  SocketNames names;
  for (const char* kind : {"tcp", "udp"}) {
    for (const char* family : {"", "6"}) {
      AddInternetSockets(ReadProcfsText(path + "/net/" + kind + family), kind, &names);
    }
  }
  AddUnixSockets(ReadProcfsText(path + "/net/unix"), &names);
  return names;
}

std::string SocketName(const SocketNames& names, const std::string& link) {
  const auto found = names.find(strtoull(link.c_str() + strlen("socket:["), nullptr, 10));
  return found == names.end() ? "socket" : found->second;
}

}  // namespace

std::vector<WaitedFd> DescribeFds(const std::string& path, const std::vector<int32_t>& fds) {
  std::vector<WaitedFd> result;
  const auto begins_with = [](const WaitedFd& fd, std::string_view start) { return fd.name.starts_with(start); };
  for (const int32_t fd : std::set<int32_t>(fds.begin(), fds.end())) {
    if (result.size() == kMaxFds) break;
    WaitedFd& described = result.emplace_back();
    described.fd = fd;
    described.name = LinkOf(path, fd);
  }
  const bool has_pipe = std::ranges::any_of(result, [&](const auto& fd) { return begins_with(fd, "pipe:["); });
  const bool has_epoll = std::ranges::any_of(result, [&](const auto& fd) { return fd.name == STACKD_EPOLL_NAME; });
  const bool has_socket = std::ranges::any_of(result, [&](const auto& fd) { return begins_with(fd, "socket:["); });
  const std::vector<int32_t> all = has_pipe || has_epoll ? ListFds(path) : std::vector<int32_t>{};
  const SocketNames sockets = has_socket ? ReadSockets(path) : SocketNames{};
  for (WaitedFd& fd : result) {
    if (begins_with(fd, "pipe:[")) fd.other_end = OtherEndOf(path, fd, all);
    if (begins_with(fd, "socket:[")) fd.name = SocketName(sockets, fd.name);
    if (fd.name == STACKD_EPOLL_NAME && all.size() <= kMaxLookedAt) AddWatched(path, &fd);
    fd.name = PrintableText(fd.name);
  }
  return result;
}

}  // namespace stackd
