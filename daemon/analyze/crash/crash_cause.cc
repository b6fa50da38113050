#include "daemon/analyze/crash/crash_cause.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "daemon/analyze/code/fault_instruction.h"
#include "daemon/analyze/code/syscall_site.h"
#include "daemon/analyze/crash/verdict.h"
#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/signal_name.h"
#include "daemon/analyze/names/syscall_name.h"
#include "daemon/base/printable.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

bool WasSent(const CrashCapture& crash) { return (crash.flags & STACKD_CRASH_SENT) != 0; }

bool SentBySelf(const CrashScene& scene) {
  return WasSent(scene.crash) && scene.crash.sender_pid == scene.capture.process.pid;
}

Verdict ExplainSent(const CrashScene& scene) {
  const CrashCapture& crash = scene.crash;
  const std::string sent = SignalName(crash.signal_number) + " sent by ";
  if (crash.signal_code == SI_TIMER) return {v1::Crash::SENT, sent + "a timer of its own"};
  if (SentBySelf(scene)) {
    const bool raised =
        scene.stack != nullptr && std::ranges::any_of(scene.stack->frames(), [](const v1::Frame& frame) {
          return frame.function() == "raise" || frame.function() == "__GI_raise" || frame.function() == "gsignal";
        });
    return {v1::Crash::SENT, sent + "itself" + (raised ? " with raise()" : "")};
  }
  // The kernel gives no number of a process that this one cannot see.
  if (crash.sender_pid == 0) return {v1::Crash::SENT, sent + "a process outside of its PID namespace"};
  return {v1::Crash::SENT, sent + "process " + std::to_string(crash.sender_pid) + " (uid " +
                               std::to_string(static_cast<uint32_t>(crash.sender_uid)) + ")"};
}

Verdict ExplainArithmetic(const CrashScene& scene) {
  const auto sentence = [&]() -> std::string {
    switch (scene.crash.signal_code) {
      case FPE_INTDIV:
        // x86 reports both alike.
        return "integer division by zero (or of the smallest integer by -1)";
      case FPE_INTOVF:
        return "integer overflow";
      case FPE_FLTDIV:
        return "floating-point division by zero";
      case FPE_FLTOVF:
        return "floating-point overflow";
      case FPE_FLTUND:
        return "floating-point underflow";
      case FPE_FLTRES:
        return "inexact floating-point result";
      case FPE_FLTINV:
        return "invalid floating-point operation";
      default:
        return "arithmetic error";
    }
  };
  return {v1::Crash::ARITHMETIC, sentence()};
}

Verdict ExplainIllegalInstruction(const CrashScene& scene) {
  switch (ReadFaultInstruction(scene.map, scene.rip())) {
    case FaultInstruction::kTrap:
      return {v1::Crash::ILLEGAL_INSTRUCTION,
              "trap instruction (ud2): the program came where its compiler knew it must not"};
    case FaultInstruction::kPrivileged:
      return {v1::Crash::ILLEGAL_INSTRUCTION, "an instruction that only kernels may use"};
    default:
      return {v1::Crash::ILLEGAL_INSTRUCTION, "an instruction that this processor does not know"};
  }
}

Verdict ExplainTrap(const CrashScene& scene) {
  // The program counter stands behind int3.
  const bool int3 = ReadFaultInstruction(scene.map, scene.rip() - 1) == FaultInstruction::kBreakpoint;
  return {v1::Crash::BREAKPOINT, int3 ? "breakpoint instruction (int3) without a debugger" : "trap without a debugger"};
}

Verdict ExplainBadSyscall(const CrashScene& scene) {
  const auto site = ReadSyscallSite(scene.map, scene.rip());
  std::string call = "a system call";
  if (site && site->number) {
    const std::string_view name = SyscallName(*site->number);
    call = "system call " + std::to_string(*site->number) + (name.empty() ? "" : " (" + std::string(name) + ")");
  }
  return {v1::Crash::BAD_SYSTEM_CALL, call + " that the seccomp filter forbids"};
}

// No signal was seen: the runtime of a language ended the process, and said why.
Verdict ExplainReport(const CrashScene& scene) {
  constexpr size_t kMaxBytes = 200;
  std::string first_line;
  if (!scene.capture.managed.reports.empty()) {
    const std::string& text = scene.capture.managed.reports.front().text;
    first_line = text.substr(0, std::min(text.find('\n'), kMaxBytes));
  }
  const auto cause = first_line.starts_with("panic") ? v1::Crash::UNCAUGHT_EXCEPTION : v1::Crash::ABORT;
  return {cause, "ended by its own runtime" + (first_line.empty() ? "" : ": " + PrintableText(first_line))};
}

// No signal either: the program itself said it.
Verdict ExplainException(const CrashScene& scene) {
  const std::string name = scene.thread == nullptr ? "" : PrintableText(scene.thread->name);
  const std::string where = name.empty() ? "" : " in thread " + name;
  return {v1::Crash::UNCAUGHT_EXCEPTION, "unhandled " + ExceptionType(scene.crash) + where};
}

// The first process of a PID namespace is sent no SIGABRT: there abort() goes on, to an instruction that ends it.
bool IsEndOfAbort(const CrashScene& scene) {
  const CrashCapture& crash = scene.crash;
  if (crash.signal_number != SIGSEGV || crash.signal_code != SI_KERNEL) return false;
  return scene.stack != nullptr && scene.stack->frames_size() > 0 &&
         PlainLibcFunction(scene.stack->frames(0).function()) == "abort";
}

Verdict Explain(const CrashScene& scene) {
  const int32_t signal_number = scene.crash.signal_number;
  if (IsUnhandledException(scene.crash)) return ExplainException(scene);
  if (signal_number == 0) return ExplainReport(scene);
  if (signal_number == SIGABRT && (SentBySelf(scene) || !WasSent(scene.crash))) return ExplainAbort(scene);
  if (IsEndOfAbort(scene)) return ExplainAbort(scene);
  if (WasSent(scene.crash)) return ExplainSent(scene);
  switch (signal_number) {
    case SIGSEGV:
    case SIGBUS:
      return ExplainMemoryFault(scene);
    case SIGFPE:
      return ExplainArithmetic(scene);
    case SIGILL:
      return ExplainIllegalInstruction(scene);
    case SIGTRAP:
      return ExplainTrap(scene);
    case SIGSYS:
      return ExplainBadSyscall(scene);
    default:
      return {v1::Crash::SENT, SignalName(signal_number) + " sent by the kernel"};
  }
}

std::string Sentence(const CrashScene& scene, const Verdict& verdict, const v1::Crash& crash) {
  // An abort is its own name.
  if (crash.signal() == SIGABRT || crash.signal() == 0 || IsEndOfAbort(scene)) return verdict.sentence;
  const bool named = verdict.sentence.starts_with(crash.signal_name());
  if (named && crash.code_name().empty()) return verdict.sentence;
  const std::string comma = named || crash.code_name().empty() ? "" : ", ";
  return verdict.sentence + " (" + (named ? "" : crash.signal_name()) + comma + crash.code_name() + ")";
}

}  // namespace

v1::Crash ExplainCrash(const Capture& capture, const v1::Stack* stack, uint64_t frame_begin_avma) {
  static const AddressMap kNoMap({});
  const CrashCapture& captured = *capture.crash;
  const auto thread = std::ranges::find(capture.threads, captured.tid, &ThreadCapture::tid);
  const CrashScene scene{capture,
                         captured,
                         capture.map == nullptr ? kNoMap : *capture.map,
                         thread == capture.threads.end() ? nullptr : &*thread,
                         stack,
                         frame_begin_avma};
  v1::Crash crash;
  char id[33];
  snprintf(id, sizeof(id), "%016lx%016lx", captured.id[0], captured.id[1]);
  crash.set_id(id);
  crash.set_tid(captured.tid);
  crash.set_signal(captured.signal_number);
  if (captured.signal_number != 0) crash.set_signal_name(SignalName(captured.signal_number));
  crash.set_code(captured.signal_code);
  crash.set_code_name(std::string(SignalCodeName(captured.signal_number, captured.signal_code)));
  if (WasSent(captured)) {
    crash.set_sender_pid(captured.sender_pid);
    crash.set_sender_uid(captured.sender_uid);
  } else if (captured.signal_number != 0 && captured.signal_code != SI_KERNEL && captured.signal_number != SIGABRT) {
    crash.set_fault_address(HexOf(captured.fault_address_avma));
  }
  crash.set_abort_message(AbortMessage(captured));
  crash.set_exception_type(ExceptionType(captured));
  crash.set_from_spool(captured.from_spool);
  const Verdict verdict = Explain(scene);
  crash.set_cause(verdict.cause);
  crash.set_explanation(Sentence(scene, verdict, crash));
  return crash;
}

}  // namespace stackd
