#include "daemon/outside/stopped_thread.h"

#include <elf.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include <cerrno>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// A thread on another core stops within some microseconds.
constexpr int kEagerLooks = 100;
constexpr int64_t kLookAgainNs = 50'000;

#ifndef PTRACE_EVENT_STOP
constexpr int PTRACE_EVENT_STOP = 128;
#endif

}  // namespace

StoppedThread::StoppedThread(int32_t tid, int64_t deadline_ns) : tid_(tid), outcome_(StopOutcome::kTraced) {
  // Not PTRACE_ATTACH, which sends a signal, and no option: a tracer that is killed takes nothing with it.
  if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
    if (errno == ESRCH) outcome_ = StopOutcome::kEnded;
    return;
  }
  // Fails for a thread that has just ended, which is then found by waiting.
  ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  outcome_ = Await(deadline_ns);
}

StopOutcome StoppedThread::Await(int64_t deadline_ns) {
  const auto id = static_cast<id_t>(tid_);
  for (int looks = 0;; looks++) {
    siginfo_t info{};
    const int error = waitid(P_PID, id, &info, WSTOPPED | WEXITED | __WALL | WNOHANG | WNOWAIT);
    if (error != 0 && errno != EINTR) return StopOutcome::kEnded;
    if (error == 0 && info.si_pid != 0) {
      if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED) {
        // Its own parent, and other threads of it, wait for the tracer to have seen its end.
        waitid(P_PID, id, &info, WEXITED | __WALL | WNOHANG);
        return StopOutcome::kEnded;
      }
      const bool is_delivery = info.si_status >> 8 != PTRACE_EVENT_STOP;
      signal_number_ = is_delivery ? info.si_status & 0x7f : 0;
      return StopOutcome::kStopped;
    }
    if (MonotonicNs() >= deadline_ns) return StopOutcome::kTooLong;
    if (looks < kEagerLooks) {
      sched_yield();
    } else {
      const timespec pause{0, kLookAgainNs};
      nanosleep(&pause, nullptr);
    }
  }
}

StoppedThread::~StoppedThread() {
  if (outcome_ == StopOutcome::kStopped) {
    ptrace(PTRACE_DETACH, tid_, nullptr, reinterpret_cast<void*>(static_cast<intptr_t>(signal_number_)));
  }
}

std::optional<user_regs_struct> StoppedThread::ReadRegisters() const {
  user_regs_struct registers{};
  iovec into{&registers, sizeof(registers)};
  if (ptrace(PTRACE_GETREGSET, tid_, NT_PRSTATUS, &into) != 0 || into.iov_len != sizeof(registers)) return std::nullopt;
  return registers;
}

}  // namespace stackd
