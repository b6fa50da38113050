#include "daemon/capture/waited_on.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <limits>

namespace stackd {
namespace {

// Arguments of `number` that are fds, bit n for argument n.
uint32_t FdArguments(uint32_t number) {
  switch (number) {
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_preadv2:
    case SYS_pwritev2:
    case SYS_close:
    case SYS_connect:
    case SYS_accept:
    case SYS_accept4:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_flock:
    case SYS_fcntl:
    case SYS_ioctl:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_syncfs:
    case SYS_sync_file_range:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_getdents64:
    case SYS_vmsplice:
    case SYS_mq_timedreceive:
    case SYS_mq_timedsend:
    case SYS_io_uring_enter:
      return 0b1;
    case SYS_tee:
    case SYS_sendfile:
      return 0b11;
    case SYS_splice:
    case SYS_copy_file_range:
      return 0b101;
    default:
      return 0;
  }
}

uint32_t Count(uint64_t argument) {
  return static_cast<uint32_t>(std::min<uint64_t>(argument, std::numeric_limits<int32_t>::max()));
}

}  // namespace

std::optional<uint64_t> WaitedFutex(const SystemCall& call) {
  if (call.number != SYS_futex || !call.knows(0) || !call.knows(1)) return std::nullopt;
  switch (static_cast<uint32_t>(call.arguments[1]) & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
      return call.arguments[0];
    default:
      return std::nullopt;
  }
}

int32_t HolderOf(const FutexWord& word) {
  if (word.mutex) return word.mutex->owner_tid;
  if (word.rwlock) return word.rwlock->writer_tid;
  if (word.thread_tid != 0) return word.thread_tid;
  if (word.stdio_owner_tid != 0) return word.stdio_owner_tid;
  return static_cast<int32_t>(word.value & FUTEX_TID_MASK);
}

std::vector<int32_t> WaitedFds(const SystemCall& call) {
  std::vector<int32_t> fds;
  const uint32_t arguments = FdArguments(call.number);
  for (int i = 0; i < 3; i++) {
    if ((arguments >> i & 1) == 0 || !call.knows(i)) continue;
    const auto fd = static_cast<int32_t>(call.arguments[static_cast<size_t>(i)]);
    if (fd >= 0) fds.push_back(fd);
  }
  return fds;
}

std::optional<FileLockKind> WaitedFileLock(const SystemCall& call) {
  if (call.number == SYS_flock) return FileLockKind::kFlock;
  if (call.number != SYS_fcntl || !call.knows(1)) return std::nullopt;
  if (call.arguments[1] == F_SETLKW) return FileLockKind::kRecord;
  if (call.arguments[1] == F_OFD_SETLKW) return FileLockKind::kOpenFile;
  return std::nullopt;
}

std::optional<FdTable> WaitedFdTable(const SystemCall& call) {
  const bool is_poll = call.number == SYS_poll || call.number == SYS_ppoll;
  const bool is_select = call.number == SYS_select || call.number == SYS_pselect6;
  FdTable table{.is_poll = is_poll};
  if (is_poll && call.knows(0) && call.knows(1)) {
    table.avma[0] = call.arguments[0];
    table.fd_count = Count(call.arguments[1]);
    return table;
  }
  if (!is_select || !call.knows(0) || static_cast<int32_t>(call.arguments[0]) < 0) return std::nullopt;
  table.fd_count = Count(call.arguments[0]);
  for (int set = 0; set < 3; set++) {
    if (call.knows(set + 1)) table.avma[set] = call.arguments[static_cast<size_t>(set) + 1];
  }
  return table;
}

}  // namespace stackd
