// Which functions wait, and for what: told by the names of the innermost frames of a stack.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Library whose lock it is: on it depends what can be known of the owner.
enum class LockMaker { kUnknown, kLibc, kCxx, kRust, kParkingLot, kAbseil, kFolly, kGo };

struct WaitFunction {
  v1::Wait::Kind kind = v1::Wait::KIND_UNSPECIFIED;  // unset: no function that is known to wait
  LockMaker maker = LockMaker::kUnknown;
  bool timed = false;  // it is given a time at which to give up
  // Says of the thread that must act, where there is one, that it is not recorded; else empty.
  std::string_view owner_note;
  // The frames that belong to the wait: those of the stack before this index. 0 if `kind` is unset.
  int end_frame = 0;
};

// What the stack waits in; `stack` as the dump has it.
WaitFunction FindWaitFunction(const v1::Stack& stack);

// True if the innermost function that is known releases a lock or wakes others, and waits for nothing.
bool IsWakeFunction(const v1::Stack& stack);

// "pthread_mutex_lock" for "___pthread_mutex_lock", "std::condition_variable::wait" for
// "void std::condition_variable::wait<main::{lambda()#1}>(...)": the name by which functions are compared here.
std::string WaitFunctionName(std::string_view function);

// True for functions of the C and C++ libraries and of Rust's and Go's runtimes. These stand between a program's function
// and the system call, and around a thread's first function.
bool IsLibraryFrame(const v1::Frame& frame);

// Tells which frames of a stack are the program's own. Frames of libraries are not. Where a runtime told of its calls,
// native frames of that runtime are not either.
class ProgramFrames {
 public:
  // `stack` outlives this.
  explicit ProgramFrames(const v1::Stack& stack);

  bool Contains(const v1::Frame& frame) const;

 private:
  std::string_view runtime_module_;
  bool has_java_ = false;
};

// Index of the innermost frame of the program itself, from `begin` on; -1 if there is none.
int FindProgramFrame(const v1::Stack& stack, int begin);

}  // namespace stackd
