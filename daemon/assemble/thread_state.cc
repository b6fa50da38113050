#include "daemon/assemble/thread_state.h"

#include <sys/syscall.h>

#include "daemon/analyze/code/syscall_site.h"
#include "daemon/analyze/names/syscall_name.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

// "clock_nanosleep" for "__GI___clock_nanosleep": C libraries have several names for one function.
std::string_view PlainName(std::string_view function) {
  const auto skip_underscores = [&] { function.remove_prefix(std::min(function.find_first_not_of('_'), function.size())); };
  skip_underscores();
  if (function.starts_with("GI_")) function.remove_prefix(3);
  skip_underscores();
  return function;
}

std::string InSyscall(std::string_view name) {
  return name.empty() ? "in a system call" : "in a system call (" + std::string(name) + ")";
}

// The function that makes the system call. What has no name is a part of the C library, called by the function that has the
// call's name.
std::string_view Wrapper(const v1::Stack& stack) {
  constexpr int kMaxUnnamed = 3;
  for (int i = 0; i < std::min(stack.frames_size(), kMaxUnnamed + 1); ++i) {
    const std::string_view name = PlainName(stack.frames(i).function());
    if (!name.empty()) return i == 0 || IsSyscall(name) ? name : "";
  }
  return "";
}

}  // namespace

std::string StateFromStack(const AddressMap& map, uint64_t pc_avma, const v1::Stack* stack) {
  const auto site = ReadSyscallSite(map, pc_avma);
  if (!site) {
    const Mapping* mapping = map.Find(pc_avma);
    // Generated code makes its system calls through functions of some library.
    const bool generated = mapping != nullptr && mapping->module == nullptr && !mapping->path.starts_with('/');
    return generated ? "running" : "running or in a system call";
  }
  if (!site->in_syscall) return "running";
  // A thread that offers its core to others has all that it needs to run.
  if (site->number == SYS_sched_yield) return "running";
  if (site->number) return InSyscall(SyscallName(*site->number));
  return InSyscall(stack == nullptr ? "" : Wrapper(*stack));
}

std::string StateFromStatus(const ThreadCapture& thread, int32_t dump_signal) {
  switch (thread.status) {
    case ThreadStatus::kCaptured:
      return "captured without a stack";
    case ThreadStatus::kSignalBlocked:
      return "blocks signal " + std::to_string(dump_signal);
    case ThreadStatus::kUninterruptible:
      return thread.wait_channel.empty() ? "uninterruptible" : "uninterruptible in " + ToValidUtf8(thread.wait_channel);
    case ThreadStatus::kStopped:
      return "stopped";
    case ThreadStatus::kExited:
      return "exited during the dump";
    case ThreadStatus::kTimedOut:
      return "did not answer by the deadline";
    case ThreadStatus::kRingFull:
      return "no room in the ring by the deadline";
    case ThreadStatus::kSignalQueueFull:
      return "the kernel would not queue the signal (RLIMIT_SIGPENDING)";
    case ThreadStatus::kAgentFault:
      return "the agent's handler met a fault of its own";
    case ThreadStatus::kRunning:
      if (thread.kernel_state == 'R') return "running";
      return "not read: it did not sleep for long, or the kernel does not tell where";
  }
  return "unknown status";
}

}  // namespace stackd
