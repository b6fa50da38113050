// A dump whose threads have their waits, as the finders of hangs look at it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/capture/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class WaitScene {
 public:
  // Both must outlive this.
  WaitScene(const Capture& capture, const v1::Dump& dump);

  const Capture& capture() const { return capture_; }
  const v1::Dump& dump() const { return dump_; }

  // nullptr if the dump has no such thread.
  const v1::Thread* Find(int32_t tid) const;
  // nullptr if it has none.
  const v1::Stack* StackOf(const v1::Thread& thread) const;

  // "thread writer (tid 12)"
  std::string Name(int32_t tid) const;
  // The innermost function of the program's own: "Transfer at bank.cc:42"; empty if none is known.
  const std::string& Place(const v1::Thread& thread);
  // "Transfer at bank.cc:42"
  static std::string FrameInWords(const v1::Frame& frame);
  // "thread writer (tid 12) in Transfer at bank.cc:42"
  std::string NameAndPlace(const v1::Thread& thread);

  // Whether a thread may come to do something for another one: it runs, or time or another process will wake it. A thread
  // in sigwait() acts on signals. One in pause() waits for a handler, which may hardly do anything.
  bool MayAct(const v1::Thread& thread) const;

  // Whether a finding has said already what this thread waits for.
  bool IsExplained(int32_t tid) const { return explained_.contains(tid); }
  void SetExplained(int32_t tid) { explained_.insert(tid); }

  // nullptr if the capture has no such thread.
  const ThreadCapture* FindCaptured(int32_t tid) const;

 private:
  // Whether the thread is in sigwait() or the like.
  bool TakesSignals(int32_t tid) const;

  const Capture& capture_;
  const v1::Dump& dump_;
  std::unordered_map<int32_t, const v1::Thread*> threads_;
  std::unordered_map<int32_t, const ThreadCapture*> captured_;
  std::vector<std::optional<std::string>> place_of_stack_;
  std::set<int32_t> explained_;
};

// "3 threads", "1 thread"
std::string ThreadsInWords(size_t count);

// "3 more threads wait", "1 more thread waits"
std::string MoreWaitInWords(size_t count);

// True for waits for what one thread has and another wants.
bool IsLockWait(v1::Wait::Kind kind);

}  // namespace stackd
