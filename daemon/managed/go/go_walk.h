// Walks the stack of a goroutine as the runtime itself does: by its table of frame sizes, which holds at every instruction,
// without frame pointers.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/managed/go/go_binary.h"

namespace stackd {

struct GoFrame {
  uint64_t pc_avma = 0;
  uint64_t sp_avma = 0;   // stack pointer in it
  bool is_exact = false;  // it was interrupted at `pc_avma`; else that is where a call returns to
  bool operator==(const GoFrame& other) const { return pc_avma == other.pc_avma && is_exact == other.is_exact; }
};

enum class GoWalkEnd {
  kTop,          // whole
  kStackSwitch,  // the function sets the stack pointer itself
  kNoCode,       // called by what is no Go code
  kUnreadable,   // the stack goes on where it was not copied
  kLimit,
  kLate,  // the deadline has passed
};

inline constexpr size_t kMaxGoFrames = 4096;

// Walker for one process at one moment; one thread at a time.
class GoWalker {
 public:
  GoWalker(const GoBinary& binary, uint64_t bias, int64_t deadline_ns)
      : binary_(binary), bias_(bias), deadline_ns_(deadline_ns) {}

  // `read` gives the word at an address, or nullopt. Adds to `frames`, innermost first.
  template <typename ReadWord>
  GoWalkEnd Walk(GoFrame frame, ReadWord read, std::vector<GoFrame>* frames) {
    for (;;) {
      const Code& code = CodeAt(frame.pc_avma);
      if (code.is_late) return GoWalkEnd::kLate;
      if (!code.known) return GoWalkEnd::kNoCode;
      if (frames->size() == kMaxGoFrames) return GoWalkEnd::kLimit;
      frames->push_back(frame);
      if (code.is_top) return GoWalkEnd::kTop;
      if (code.moves_stack || !code.frame_bytes) return GoWalkEnd::kStackSwitch;
      const uint64_t return_avma = frame.sp_avma + *code.frame_bytes;
      const std::optional<uint64_t> return_pc = read(return_avma);
      if (!return_pc) return GoWalkEnd::kUnreadable;
      // Stacks grow down, and every call pushes a word, so this loop ends.
      if (return_avma < frame.sp_avma) return GoWalkEnd::kNoCode;
      frame = {*return_pc, return_avma + 8, code.was_injected};
    }
  }

  // True also if the deadline came before the look-up.
  bool MayBeCode(uint64_t pc_avma) {
    const Code& code = CodeAt(pc_avma);
    return code.known || code.is_late;
  }

 private:
  struct Code {
    bool known = false;
    bool is_late = false;  // not looked up: the deadline had passed
    bool is_top = false;
    bool moves_stack = false;
    bool was_injected = false;  // by the runtime, into whatever ran: its caller did not call
    std::optional<uint32_t> frame_bytes;
  };

  // The reference is valid until the next call.
  const Code& CodeAt(uint64_t pc_avma);

  const GoBinary& binary_;
  uint64_t bias_;
  int64_t deadline_ns_;
  std::unordered_map<uint64_t, Code> codes_;
};

}  // namespace stackd
