#include "daemon/core/core_threads.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/core/last_words.h"
#include "daemon/modules/address_map.h"
#include "daemon/outside/agent_code.h"
#include "daemon/ring/record.h"
#include "daemon/ring/recording.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

// A function with a large frame steps over a guard page.
constexpr uint64_t kMaxGuardBytes = 1u << 20;
// x86's number of a general protection fault. The core does not have it, but the kernel's SI_KERNEL means hardly any other.
constexpr uint64_t kGeneralProtection = 13;

// Whether the thread had made a call that did not return. rax has what the kernel notes down for its way back
// (linux/errno.h), or EINTR where the end of the process, or a debugger, woke it.
bool IsInCall(const user_regs_struct& registers) {
  const auto error = -static_cast<int64_t>(registers.rax);
  const bool is_interrupted = (error >= 512 && error <= 514) || error == 516 || error == EINTR;
  return static_cast<int64_t>(registers.orig_rax) >= 0 && is_interrupted;
}

// Ends a process with a core, unless it is handled (signal(7)).
bool EndsWithCore(int signal_number) {
  switch (signal_number) {
    case SIGQUIT:
    case SIGILL:
    case SIGTRAP:
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGSEGV:
    case SIGXCPU:
    case SIGXFSZ:
    case SIGSYS:
      return true;
    default:
      return false;
  }
}

// A debugger's core of a process that goes on has the signal that the debugger saw last. A breakpoint is its own doing.
bool HasCrashed(const CoreFile& core) {
  const auto& signal = core.signal();
  return signal && EndsWithCore(signal->si_signo) && !(core.is_by_debugger() && signal->si_signo == SIGTRAP);
}

// The mapping that the stack lies in, also where the stack pointer has run over its end; {0, 0}: there is none.
stackd_interval StackOf(const CoreThread& thread, const AddressMap& map) {
  const uint64_t rsp_avma = thread.registers.rsp;
  auto stack = std::ranges::upper_bound(map.mappings(), rsp_avma, {}, &Mapping::end_avma);
  while (stack != map.mappings().end() && !stack->readable) ++stack;
  if (stack == map.mappings().end() || !stack->writable) return {};
  const bool is_near = stack->start_avma <= rsp_avma || stack->start_avma - rsp_avma <= kMaxGuardBytes;
  return is_near ? stackd_interval{stack->start_avma, stack->end_avma} : stackd_interval{};
}

void AddWithoutStack(const CoreThread& thread, ThreadStatus why, Recording* recording) {
  StatusRecord record;
  record.seq = AgentCode::kSeq;
  record.tid = static_cast<uint32_t>(thread.tid);
  record.status = static_cast<uint8_t>(why);
  recording->OnStatus(std::move(record));
}

bool Write(const AgentCode& agent, const CoreFile& core, const CoreThread& thread, stackd_interval crashed_stack) {
  stackd_capture capture = agent.Begin(thread.tid);
  // The core has a name for the process alone.
  if (thread.tid == core.pid()) core.name().copy(capture.name, sizeof(capture.name) - 1);
  capture.cpu_ns = static_cast<uint64_t>(thread.cpu_ns);
  AgentCode::FillRegisters(thread.registers, &capture);
  if (IsInCall(thread.registers)) AgentCode::FillCall(thread.registers, &capture);
  if (crashed_stack.end != 0) {
    capture.stack = crashed_stack;
    // Both ends of a long stack stay, as of any crash.
    capture.crash_slots = UINT32_MAX;
  }
  return stackd_capture_write(&capture) == 0;
}

}  // namespace

Result<void> ReadCoreThreads(const CoreFile& core, int maps_fd, int64_t deadline_ns, Capture* capture) {
  // The number of a process means nothing to readers of pieces of files. 0 would be this one.
  auto agent = AgentCode::SetOn(core.pid() > 0 ? core.pid() : core.threads()[0].tid, maps_fd, kMaxStackBytes);
  if (!agent) return std::unexpected(agent.error());
  CollectorCounters counters;
  Recording recording(AgentCode::kSeq, &counters);
  recording.listed = static_cast<uint32_t>(core.threads().size());
  const bool has_crashed = HasCrashed(core);
  for (const CoreThread& thread : core.threads()) {
    const bool is_first = &thread == &core.threads()[0];
    if (!is_first && MonotonicNs() >= deadline_ns) {
      AddWithoutStack(thread, ThreadStatus::kTimedOut, &recording);
      capture->partial = true;
      continue;
    }
    const bool is_written =
        Write(**agent, core, thread, has_crashed && is_first ? StackOf(thread, *capture->map) : stackd_interval{});
    if (!is_written) AddWithoutStack(thread, ThreadStatus::kRingFull, &recording);
    (*agent)->Take(&recording);
  }
  recording.AddNotes(&capture->notes);
  capture->threads = recording.TakeThreads();
  capture->held = recording.TakeHeld();
  // No thread was held up.
  for (ThreadCapture& thread : capture->threads) thread.pause_ns = 0;
  return {};
}

void AddCrashOfCore(const CoreFile& core, const ProcessFiles& files, Capture* capture) {
  if (!HasCrashed(core)) return;
  const siginfo_t& signal = *core.signal();
  const CoreThread& thread = core.threads()[0];
  const stackd_interval stack = StackOf(thread, *capture->map);
  const bool is_sent = signal.si_code <= 0;
  capture->trigger = Trigger::kCrash;
  CrashCapture& crash = capture->crash.emplace();
  crash.flags = (is_sent ? STACKD_CRASH_SENT : 0) | (core.pid() == 1 ? STACKD_CRASH_INIT : 0);
  crash.tid = thread.tid;
  crash.signal_number = signal.si_signo;
  crash.signal_code = signal.si_code;
  if (is_sent) {
    crash.sender_pid = signal.si_pid;
    crash.sender_uid = static_cast<int32_t>(signal.si_uid);
  } else {
    crash.fault_address_avma = reinterpret_cast<uint64_t>(signal.si_addr);
    if (signal.si_code == SI_KERNEL) crash.trap_number = kGeneralProtection;
  }
  crash.stack_start_avma = stack.start;
  crash.stack_end_avma = stack.end;
  if (signal.si_signo != SIGABRT && core.pid() != 1) return;
  LastWords words = ReadLastWords(*capture->map, thread.registers.fs_base, files);
  crash.abort_message = std::move(words.abort_message);
  crash.exception_type = std::move(words.exception_type);
}

}  // namespace stackd
