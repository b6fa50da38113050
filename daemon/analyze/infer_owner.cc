#include "daemon/analyze/infer_owner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "daemon/analyze/function_name.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

// Frames that are looked at for what a lock belongs to: those of the library around the wait.
constexpr int kMaxLibraryFrames = 12;
// Frames that are looked at for the initializer that a thread is in.
constexpr int kMaxFrames = 256;

std::string Name(const v1::Frame& frame) { return WaitFunctionName(PlainLibcFunction(frame.function())); }

bool IsAllocator(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "malloc",      "free",         "calloc",        "realloc",        "memalign",      "int_malloc",         "int_free",
      "int_realloc", "int_memalign", "arena_get2",    "posix_memalign", "aligned_alloc", "malloc_consolidate", "mallopt",
      "malloc_trim", "mallinfo2",    "libc_mallinfo2"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

bool IsStackCache(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "allocate_stack", "get_cached_stack", "nptl_deallocate_stack", "deallocate_stack", "nptl_free_stacks", "free_stacks",
      "queue_stack",    "nptl_free_tcb",    "pthread_create_2_1",    "pthread_create",   "start_thread"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Names of the library functions from `begin` on, up to the program's.
std::set<std::string> LibraryFunctions(const v1::Stack& stack, int begin) {
  std::set<std::string> names;
  const int end = std::min(stack.frames_size(), begin + kMaxLibraryFrames);
  for (int i = begin; i < end && IsLibraryFrame(stack.frames(i)); ++i) {
    if (i > begin && stack.frames(i).origin() == v1::Frame::SIGNAL_FRAME) break;
    if (!stack.frames(i).function().empty()) names.insert(Name(stack.frames(i)));
  }
  return names;
}

bool AnyAllocator(const std::set<std::string>& names) { return std::ranges::any_of(names, IsAllocator); }

bool IsOnce(std::string_view name) {
  return name == "pthread_once_slow" || name == "pthread_once" || name == "cxa_guard_acquire" ||
         name.ends_with("::futex::Once::call") || name == "parking_lot::once::Once::call_once_slow";
}

// The function that asked for a one-time initialization which the stack is in from `begin` on; nullopt if it is in none.
std::optional<std::string> OnceCaller(const v1::Stack& stack, int begin) {
  const int end = std::min(stack.frames_size(), begin + kMaxFrames);
  for (int i = begin; i < end; ++i) {
    if (stack.frames(i).function().empty() || !IsOnce(Name(stack.frames(i)))) continue;
    const int caller = FindProgramFrame(stack, i + 1);
    return caller < 0 ? std::string() : PlainFunction(stack.frames(caller).function());
  }
  return std::nullopt;
}

class OwnerInference {
 public:
  OwnerInference(const std::vector<const WaitFunction*>& functions, const WaitPlaces& places, v1::Dump* dump)
      : functions_(functions), places_(places), dump_(*dump) {}

  void Run() {
    for (int i = 0; i < dump_.threads_size(); ++i) {
      v1::Thread& thread = *dump_.mutable_threads(i);
      const v1::Stack* stack = StackOf(thread);
      if (!thread.has_wait() || stack == nullptr || functions_[i] == nullptr) continue;
      if (thread.wait().kind() == Wait::INTERNAL_LOCK) InternalLock(*stack, *functions_[i], &thread);
      if (thread.wait().kind() == Wait::ONCE) Once(*stack, *functions_[i], &thread);
    }
  }

 private:
  const v1::Stack* StackOf(const v1::Thread& thread) const {
    const bool has_stack = thread.has_stack() && thread.stack() >= 0 && thread.stack() < dump_.stacks_size();
    return has_stack ? &dump_.stacks(thread.stack()) : nullptr;
  }

  static void SetOwner(int32_t tid, std::string note, v1::Thread* thread) {
    Wait& wait = *thread->mutable_wait();
    wait.set_owner(Wait::KNOWN);
    wait.set_owner_tid(tid);
    wait.set_owner_note("inferred from the stacks: " + std::move(note));
  }

  void InternalLock(const v1::Stack& stack, const WaitFunction& function, v1::Thread* thread) {
    const std::set<std::string> names = LibraryFunctions(stack, 0);
    if (AnyAllocator(names)) {
      thread->mutable_wait()->set_lock_kind("malloc arena lock");
    } else if (std::ranges::any_of(names, IsStackCache)) {
      thread->mutable_wait()->set_lock_kind("stack cache lock");
      StackCache(thread);
    }
    Reentry(stack, function, names, thread);
  }

  // The handler of a signal calls what the signal interrupted.
  static void Reentry(const v1::Stack& stack, const WaitFunction& function, const std::set<std::string>& names,
                      v1::Thread* thread) {
    for (int i = std::max(function.end_frame, 1); i < stack.frames_size(); ++i) {
      if (stack.frames(i).origin() != v1::Frame::SIGNAL_FRAME) continue;
      const std::set<std::string> interrupted = LibraryFunctions(stack, i);
      const bool allocators = AnyAllocator(names) && AnyAllocator(interrupted);
      const auto same = std::ranges::find_if(
          interrupted, [&](const std::string& name) { return names.contains(name) && !name.starts_with("lll_"); });
      if (!allocators && same == interrupted.end()) continue;
      const std::string what = allocators ? "malloc" : *same;
      SetOwner(thread->tid(), what + " was called in a signal handler that interrupted " + what + " in the same thread",
               thread);
      return;
    }
  }

  // It is held while surplus stacks are unmapped.
  void StackCache(v1::Thread* waiter) {
    if (!stack_freers_) stack_freers_ = FindStackFreers();
    if (stack_freers_->size() == 1) SetOwner(stack_freers_->front(), "it gives back stacks of ended threads", waiter);
  }

  std::vector<int32_t> FindStackFreers() const {
    std::vector<bool> frees(dump_.stacks_size());
    for (int i = 0; i < dump_.stacks_size(); ++i) {
      const auto& frames = dump_.stacks(i).frames();
      const auto end = frames.begin() + std::min(frames.size(), kMaxLibraryFrames);
      frees[i] = std::any_of(frames.begin(), end, [](const v1::Frame& frame) {
        const std::string name = Name(frame);
        return name == "nptl_free_stacks" || name == "free_stacks";
      });
    }
    std::vector<int32_t> tids;
    for (const v1::Thread& thread : dump_.threads()) {
      const bool is_free = StackOf(thread) != nullptr && thread.wait().kind() != Wait::INTERNAL_LOCK;
      if (is_free && frees[thread.stack()]) tids.push_back(thread.tid());
    }
    return tids;
  }

  // The threads that are in an initializer, which may wait for another one, by the function that asked for it.
  std::map<std::string, std::vector<int32_t>> FindInitializers() const {
    std::map<std::string, std::vector<int32_t>> tids;
    std::map<std::pair<int, int>, std::optional<std::string>> places;  // by stack, and where in it to begin
    for (int i = 0; i < dump_.threads_size(); ++i) {
      const v1::Thread& thread = dump_.threads(i);
      const v1::Stack* stack = StackOf(thread);
      if (stack == nullptr) continue;
      const bool waits_for_one = thread.wait().kind() == Wait::ONCE && functions_[i] != nullptr;
      const int begin = waits_for_one ? functions_[i]->end_frame : 0;
      const auto [place, is_new] = places.try_emplace({thread.stack(), begin});
      if (is_new) place->second = OnceCaller(*stack, begin);
      if (place->second) tids[*place->second].push_back(thread.tid());
    }
    return tids;
  }

  void Once(const v1::Stack& stack, const WaitFunction& function, v1::Thread* thread) {
    if (!initializers_) initializers_ = FindInitializers();
    const int caller_frame = FindProgramFrame(stack, function.end_frame);
    if (caller_frame < 0) return;
    const std::string caller = PlainFunction(stack.frames(caller_frame).function());
    const auto at_same_place = initializers_->find(caller);
    const bool only_own = initializers_->size() == 1 && initializers_->begin()->second == std::vector{thread->tid()};
    if (only_own || (at_same_place != initializers_->end() && at_same_place->second == std::vector{thread->tid()})) {
      SetOwner(thread->tid(), "the initializer asks for its own initialization", thread);
      return;
    }
    const bool is_certain = at_same_place != initializers_->end() && at_same_place->second.size() == 1;
    const Wait& wait = thread->wait();
    if (!is_certain || wait.futex_address().empty()) return;
    if (!places_.IsStatic(std::stoull(wait.futex_address(), nullptr, 16))) return;
    SetOwner(at_same_place->second[0], "it is in an initializer that was begun at the same place", thread);
  }

  std::optional<std::vector<int32_t>> stack_freers_;
  std::optional<std::map<std::string, std::vector<int32_t>>> initializers_;
  const std::vector<const WaitFunction*>& functions_;
  const WaitPlaces& places_;
  v1::Dump& dump_;
};

}  // namespace

void InferOwners(const std::vector<const WaitFunction*>& functions, const WaitPlaces& places, v1::Dump* dump) {
  OwnerInference(functions, places, dump).Run();
}

}  // namespace stackd
