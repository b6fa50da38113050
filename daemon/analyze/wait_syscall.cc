#include "daemon/analyze/wait_syscall.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>

namespace stackd {
namespace {

using Wait = v1::Wait;

// How a call says that it ends by itself.
enum class Timeout { kNone, kAlways, kPointer, kMilliseconds };

struct Row {
  uint32_t number;
  Wait::Kind kind;
  int fd_argument = -1;
  Timeout timeout = Timeout::kNone;
  int timeout_argument = -1;
};

constexpr Row kRows[] = {
    {SYS_read, Wait::READ, 0},
    {SYS_pread64, Wait::READ, 0},
    {SYS_readv, Wait::READ, 0},
    {SYS_preadv, Wait::READ, 0},
    {SYS_preadv2, Wait::READ, 0},
    {SYS_recvfrom, Wait::READ, 0},
    {SYS_recvmsg, Wait::READ, 0},
    {SYS_recvmmsg, Wait::READ, 0, Timeout::kPointer, 4},
    {SYS_write, Wait::WRITE, 0},
    {SYS_pwrite64, Wait::WRITE, 0},
    {SYS_writev, Wait::WRITE, 0},
    {SYS_pwritev, Wait::WRITE, 0},
    {SYS_pwritev2, Wait::WRITE, 0},
    {SYS_sendto, Wait::WRITE, 0},
    {SYS_sendmsg, Wait::WRITE, 0},
    {SYS_sendmmsg, Wait::WRITE, 0},
    {SYS_sendfile, Wait::WRITE, 0},
    {SYS_accept, Wait::ACCEPT, 0},
    {SYS_accept4, Wait::ACCEPT, 0},
    {SYS_connect, Wait::CONNECT, 0},
    {SYS_epoll_wait, Wait::EVENTS, 0, Timeout::kMilliseconds, 3},
    {SYS_epoll_pwait, Wait::EVENTS, 0, Timeout::kMilliseconds, 3},
    {SYS_epoll_pwait2, Wait::EVENTS, 0, Timeout::kPointer, 3},
    {SYS_poll, Wait::EVENTS, -1, Timeout::kMilliseconds, 2},
    {SYS_ppoll, Wait::EVENTS, -1, Timeout::kPointer, 2},
    {SYS_select, Wait::EVENTS, -1, Timeout::kPointer, 4},
    {SYS_pselect6, Wait::EVENTS, -1, Timeout::kPointer, 4},
    {SYS_io_getevents, Wait::EVENTS, -1, Timeout::kPointer, 4},
    {SYS_io_uring_enter, Wait::EVENTS, 0},
    {SYS_nanosleep, Wait::SLEEP, -1, Timeout::kAlways},
    {SYS_clock_nanosleep, Wait::SLEEP, -1, Timeout::kAlways},
    {SYS_flock, Wait::FILE_LOCK, 0},
    {SYS_wait4, Wait::CHILD},
    {SYS_waitid, Wait::CHILD},
    {SYS_pause, Wait::SIGNAL},
    {SYS_rt_sigsuspend, Wait::SIGNAL},
    {SYS_rt_sigtimedwait, Wait::SIGNAL, -1, Timeout::kPointer, 2},
    {SYS_semop, Wait::IPC},
    {SYS_semtimedop, Wait::IPC, -1, Timeout::kPointer, 3},
    {SYS_msgrcv, Wait::IPC},
    {SYS_msgsnd, Wait::IPC},
    {SYS_mq_timedreceive, Wait::IPC, 0, Timeout::kPointer, 4},
    {SYS_mq_timedsend, Wait::IPC, 0, Timeout::kPointer, 4},
};

bool EndsByItself(const Row& row, const SystemCall& call) {
  if (row.timeout == Timeout::kAlways) return true;
  if (row.timeout == Timeout::kNone || !call.knows(row.timeout_argument)) return false;
  const uint64_t value = call.arguments[static_cast<size_t>(row.timeout_argument)];
  return row.timeout == Timeout::kPointer ? value != 0 : static_cast<int32_t>(value) >= 0;
}

bool IsFileLock(const SystemCall& call) {
  if (call.number != SYS_fcntl || !call.knows(1)) return false;
  const uint64_t command = call.arguments[1];
  return command == F_SETLKW || command == F_OFD_SETLKW;
}

}  // namespace

SyscallWait DescribeSyscallWait(const SystemCall& call) {
  if (IsFileLock(call)) return {Wait::FILE_LOCK, 0, false};
  const auto* row = std::ranges::find(kRows, call.number, &Row::number);
  if (row == std::end(kRows)) return {};
  return {row->kind, row->fd_argument, EndsByItself(*row, call)};
}

}  // namespace stackd
