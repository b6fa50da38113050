#include "daemon/analyze/waits/wait_syscall.h"

#include <sys/syscall.h>

#include <algorithm>

#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

// How a call says that it ends by itself.
enum class Timeout { kNone, kAlways, kPointer, kMilliseconds };

struct Row {
  uint32_t number;
  Wait::Kind kind;
  Timeout timeout = Timeout::kNone;
  int timeout_argument = -1;
};

constexpr Row kRows[] = {
    {SYS_read, Wait::READ},
    {SYS_pread64, Wait::READ},
    {SYS_readv, Wait::READ},
    {SYS_preadv, Wait::READ},
    {SYS_preadv2, Wait::READ},
    {SYS_recvfrom, Wait::READ},
    {SYS_recvmsg, Wait::READ},
    {SYS_recvmmsg, Wait::READ, Timeout::kPointer, 4},
    {SYS_write, Wait::WRITE},
    {SYS_pwrite64, Wait::WRITE},
    {SYS_writev, Wait::WRITE},
    {SYS_pwritev, Wait::WRITE},
    {SYS_pwritev2, Wait::WRITE},
    {SYS_sendto, Wait::WRITE},
    {SYS_sendmsg, Wait::WRITE},
    {SYS_sendmmsg, Wait::WRITE},
    {SYS_sendfile, Wait::WRITE},
    {SYS_accept, Wait::ACCEPT},
    {SYS_accept4, Wait::ACCEPT},
    {SYS_connect, Wait::CONNECT},
    {SYS_epoll_wait, Wait::EVENTS, Timeout::kMilliseconds, 3},
    {SYS_epoll_pwait, Wait::EVENTS, Timeout::kMilliseconds, 3},
    {SYS_epoll_pwait2, Wait::EVENTS, Timeout::kPointer, 3},
    {SYS_poll, Wait::EVENTS, Timeout::kMilliseconds, 2},
    {SYS_ppoll, Wait::EVENTS, Timeout::kPointer, 2},
    {SYS_select, Wait::EVENTS, Timeout::kPointer, 4},
    {SYS_pselect6, Wait::EVENTS, Timeout::kPointer, 4},
    {SYS_io_getevents, Wait::EVENTS, Timeout::kPointer, 4},
    {SYS_io_uring_enter, Wait::EVENTS},
    {SYS_nanosleep, Wait::SLEEP, Timeout::kAlways},
    {SYS_clock_nanosleep, Wait::SLEEP, Timeout::kAlways},
    {SYS_wait4, Wait::CHILD},
    {SYS_waitid, Wait::CHILD},
    {SYS_pause, Wait::SIGNAL},
    {SYS_rt_sigsuspend, Wait::SIGNAL},
    {SYS_rt_sigtimedwait, Wait::SIGNAL, Timeout::kPointer, 2},
    {SYS_semop, Wait::IPC},
    {SYS_semtimedop, Wait::IPC, Timeout::kPointer, 3},
    {SYS_msgrcv, Wait::IPC},
    {SYS_msgsnd, Wait::IPC},
    {SYS_mq_timedreceive, Wait::IPC, Timeout::kPointer, 4},
    {SYS_mq_timedsend, Wait::IPC, Timeout::kPointer, 4},
};

bool EndsByItself(const Row& row, const SystemCall& call) {
  if (row.timeout == Timeout::kAlways) return true;
  if (row.timeout == Timeout::kNone || !call.knows(row.timeout_argument)) return false;
  const uint64_t value = call.arguments[static_cast<size_t>(row.timeout_argument)];
  return row.timeout == Timeout::kPointer ? value != 0 : static_cast<int32_t>(value) >= 0;
}

}  // namespace

SyscallWait DescribeSyscallWait(const SystemCall& call) {
  if (WaitedFileLock(call)) return {Wait::FILE_LOCK, false};
  const auto* row = std::ranges::find(kRows, call.number, &Row::number);
  if (row == std::end(kRows)) return {};
  return {row->kind, EndsByItself(*row, call)};
}

}  // namespace stackd
