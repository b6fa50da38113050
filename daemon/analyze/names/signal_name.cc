#include "daemon/analyze/names/signal_name.h"

#include <csignal>
#include <cstring>

namespace stackd {
namespace {

// Names a code above 0, whose meaning depends on the signal. Numbers that this C library's headers do not have are Linux's.
std::string_view FaultCodeName(int32_t signal_number, int32_t code) {
  static constexpr std::string_view kIll[] = {"ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP",  "ILL_PRVOPC",
                                              "ILL_PRVREG", "ILL_COPROC", "ILL_BADSTK", "ILL_BADIADDR"};
  static constexpr std::string_view kFpe[] = {"FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF", "FPE_FLTUND",
                                              "FPE_FLTRES", "FPE_FLTINV", "FPE_FLTSUB", "",           "",
                                              "",           "",           "",           "FPE_FLTUNK", "FPE_CONDTRAP"};
  static constexpr std::string_view kSegv[] = {"SEGV_MAPERR",  "SEGV_ACCERR",  "SEGV_BNDERR",  "SEGV_PKUERR",
                                               "SEGV_ACCADI",  "SEGV_ADIDERR", "SEGV_ADIPERR", "SEGV_MTEAERR",
                                               "SEGV_MTESERR", "SEGV_CPERR"};
  static constexpr std::string_view kBus[] = {"BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"};
  static constexpr std::string_view kTrap[] = {"TRAP_BRKPT",  "TRAP_TRACE", "TRAP_BRANCH",
                                               "TRAP_HWBKPT", "TRAP_UNK",   "TRAP_PERF"};
  static constexpr std::string_view kSys[] = {"SYS_SECCOMP", "SYS_USER_DISPATCH"};
  const auto name = [code](const auto& names) {
    return static_cast<size_t>(code) <= std::size(names) ? names[code - 1] : std::string_view();
  };
  switch (signal_number) {
    case SIGILL:
      return name(kIll);
    case SIGFPE:
      return name(kFpe);
    case SIGSEGV:
      return name(kSegv);
    case SIGBUS:
      return name(kBus);
    case SIGTRAP:
      return name(kTrap);
    case SIGSYS:
      return name(kSys);
    default:
      return "";
  }
}

}  // namespace

std::string SignalName(int32_t signal_number) {
  const char* name = sigabbrev_np(signal_number);
  return name == nullptr ? "signal " + std::to_string(signal_number) : "SIG" + std::string(name);
}

std::string_view SignalCodeName(int32_t signal_number, int32_t code) {
  switch (code) {
    case SI_USER:
      return "SI_USER";
    case SI_KERNEL:
      return "SI_KERNEL";
    case SI_QUEUE:
      return "SI_QUEUE";
    case SI_TIMER:
      return "SI_TIMER";
    case SI_MESGQ:
      return "SI_MESGQ";
    case SI_ASYNCIO:
      return "SI_ASYNCIO";
    case SI_SIGIO:
      return "SI_SIGIO";
    case SI_TKILL:
      return "SI_TKILL";
    default:
      return code > 0 ? FaultCodeName(signal_number, code) : "";
  }
}

}  // namespace stackd
