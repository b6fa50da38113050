// Input (`CrashScene`) and result (`Verdict`) that the explainers of crashes share.
#pragma once

#include <string>
#include <string_view>

#include "daemon/capture/capture.h"
#include "daemon/modules/address_map.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct Verdict {
  v1::Crash::Cause cause;
  std::string sentence;  // without the names of signal and code
};

// A crash with all that is known of it.
struct CrashScene {
  const Capture& capture;
  const CrashCapture& crash;
  const AddressMap& map;        // empty if there is none
  const ThreadCapture* thread;  // that crashed; nullptr: it is not among those captured
  const v1::Stack* stack;       // of that thread, or nullptr
  uint64_t frame_begin_avma;    // canonical frame address of its innermost frame; 0 if it is not known

  uint64_t rip() const { return thread == nullptr ? 0 : thread->registers.value[Registers::kRip]; }
  uint64_t rsp() const { return thread == nullptr ? 0 : thread->registers.value[Registers::kRsp]; }
};

// Explains a SIGSEGV or SIGBUS that memory is to blame for.
Verdict ExplainMemoryFault(const CrashScene& scene);

// Explains a SIGABRT that the program raised itself.
Verdict ExplainAbort(const CrashScene& scene);

// The abort message, on one line and printable.
std::string AbortMessage(const CrashCapture& crash);

// The exception's type, demangled; empty if there was none.
std::string ExceptionType(const CrashCapture& crash);

// "0x7f12"
std::string HexOf(uint64_t value);

}  // namespace stackd
