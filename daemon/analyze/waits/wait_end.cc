#include "daemon/analyze/waits/wait_end.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "daemon/analyze/waits/wait_syscall.h"
#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

constexpr int kFutexTimeout = 3;

// A name as the agent gives it: a kind, its own address, and behind an arrow that of its peer (agent/fd_names.c).
bool IsSocketWithoutPeer(std::string_view name) {
  constexpr std::string_view kKinds[] = {"udp", "inet",  "inet6",     "netlink", "packet",
                                         "can", "vsock", "bluetooth", "socket"};
  const std::string_view kind = name.substr(0, name.find(' '));
  const bool has_peer = name.find(" -> ") != name.npos;
  // A unix socket with a name of its own serves any process that knows the name.
  const bool serves = kind == "unix" && name.size() > kind.size();
  return !has_peer && (serves || std::ranges::find(kKinds, kind) != std::end(kKinds));
}

WaitEnd EndOfRead(const WaitedFd& fd) {
  const std::string_view name = fd.name;
  if (name.empty() || fd.fd == STDIN_FILENO) return WaitEnd::kOutside;
  if (name.starts_with("pipe:")) return fd.other_end >= 0 ? WaitEnd::kInside : WaitEnd::kOutside;
  if (name.starts_with("anon_inode:[eventfd]")) return WaitEnd::kInside;
  // inotify, fanotify, timerfd, signalfd, userfaultfd, ...; and terminals.
  if (name.starts_with("anon_inode:") || name.starts_with("/dev/")) return WaitEnd::kOutside;
  return IsSocketWithoutPeer(name) ? WaitEnd::kOutside : WaitEnd::kOwed;
}

}  // namespace

int32_t DecidingFd(const SystemCall& call) {
  if (DescribeSyscallWait(call).kind != Wait::READ) return -1;
  const std::vector<int32_t> fds = WaitedFds(call);
  return fds.empty() ? -1 : fds[0];
}

WaitEnd WaitEndOf(const SystemCall& call, std::span<const WaitedFd> fds) {
  if (call.number == SYS_futex) {
    const bool timed = call.knows(kFutexTimeout) && call.arguments[kFutexTimeout] != 0;
    return timed ? WaitEnd::kTime : WaitEnd::kInside;
  }
  const SyscallWait wait = DescribeSyscallWait(call);
  switch (wait.kind) {
    case Wait::ACCEPT:
    case Wait::EVENTS:
    case Wait::SIGNAL:
      return WaitEnd::kOutside;
    case Wait::READ: {
      const auto known = std::ranges::find(fds, DecidingFd(call), &WaitedFd::fd);
      return known == fds.end() ? WaitEnd::kOutside : EndOfRead(*known);
    }
    default:
      break;
  }
  if (wait.timed) return WaitEnd::kTime;
  const bool awaits_message = call.number == SYS_mq_timedreceive || call.number == SYS_msgrcv;
  return awaits_message ? WaitEnd::kOutside : WaitEnd::kOwed;
}

}  // namespace stackd
