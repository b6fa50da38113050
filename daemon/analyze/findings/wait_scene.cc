#include "daemon/analyze/findings/wait_scene.h"

#include <sys/syscall.h>

#include <algorithm>

#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/analyze/waits/wait_function.h"
#include "daemon/analyze/waits/wait_words.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

const std::string kNothing;

// True for a wait that only a thread of the same process can end.
bool EndsFromInside(const Wait& wait) {
  if (wait.timed() || wait.owner() == Wait::OTHER_PROCESS) return false;
  if (wait.futex_operation().empty()) return false;
  // libstdc++ waits for its own futures as for words that processes share.
  const bool is_own = wait.kind() == Wait::JOIN || wait.kind() == Wait::FUTURE;
  return is_own || wait.futex_operation().find("_PRIVATE") != std::string::npos;
}

}  // namespace

std::string WaitScene::FrameInWords(const v1::Frame& frame) {
  std::string text = PrintableText(PlainFunctionOf(frame));
  if (frame.file().empty()) return text;
  text += " at " + PrintableText(frame.file().substr(frame.file().rfind('/') + 1));
  return frame.line() > 0 ? text + ":" + std::to_string(frame.line()) : text;
}

WaitScene::WaitScene(const Capture& capture, const v1::Dump& dump)
    : capture_(capture), dump_(dump), place_of_stack_(dump.stacks_size()) {
  for (const v1::Thread& thread : dump.threads()) threads_.emplace(thread.tid(), &thread);
  for (const ThreadCapture& thread : capture.threads) captured_.emplace(thread.tid, &thread);
}

const v1::Thread* WaitScene::Find(int32_t tid) const {
  const auto found = threads_.find(tid);
  return found == threads_.end() ? nullptr : found->second;
}

const v1::Stack* WaitScene::StackOf(const v1::Thread& thread) const {
  const bool has_stack = thread.has_stack() && thread.stack() >= 0 && thread.stack() < dump_.stacks_size();
  return has_stack ? &dump_.stacks(thread.stack()) : nullptr;
}

std::string WaitScene::Name(int32_t tid) const {
  const v1::Thread* thread = Find(tid);
  return thread == nullptr ? "thread " + std::to_string(tid) : ThreadWithTid(*thread, dump_.process().pid());
}

const std::string& WaitScene::Place(const v1::Thread& thread) {
  const v1::Stack* stack = StackOf(thread);
  if (stack == nullptr) return kNothing;
  std::optional<std::string>& place = place_of_stack_[thread.stack()];
  if (!place) {
    const int frame = FindProgramFrame(*stack, 0);
    place = frame < 0 ? "" : FrameInWords(stack->frames(frame));
  }
  return *place;
}

std::string WaitScene::NameAndPlace(const v1::Thread& thread) {
  const std::string& place = Place(thread);
  const std::string name = Name(thread.tid());
  return place.empty() ? name : name + " in " + place;
}

bool WaitScene::TakesSignals(int32_t tid) const {
  const ThreadCapture* captured = FindCaptured(tid);
  return captured != nullptr && captured->call && captured->call->number == SYS_rt_sigtimedwait;
}

const ThreadCapture* WaitScene::FindCaptured(int32_t tid) const {
  const auto captured = captured_.find(tid);
  return captured == captured_.end() ? nullptr : captured->second;
}

bool WaitScene::MayAct(const v1::Thread& thread) const {
  if (thread.status() == v1::Thread::EXITED || thread.is_agent()) return false;
  if (!thread.has_wait()) return true;
  if (thread.wait().kind() == Wait::SIGNAL) return TakesSignals(thread.tid());
  return !EndsFromInside(thread.wait());
}

std::string ThreadsInWords(size_t count) { return std::to_string(count) + (count == 1 ? " thread" : " threads"); }

std::string MoreWaitInWords(size_t count) {
  return std::to_string(count) + (count == 1 ? " more thread waits" : " more threads wait");
}

bool IsLockWait(Wait::Kind kind) {
  switch (kind) {
    case Wait::MUTEX:
    case Wait::RWLOCK_READ:
    case Wait::RWLOCK_WRITE:
    case Wait::ONCE:
    case Wait::INTERNAL_LOCK:
    case Wait::GIL:
    case Wait::MONITOR:
      return true;
    default:
      return false;
  }
}

}  // namespace stackd
