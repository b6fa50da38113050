#include "daemon/analyze/waits/infer_owner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/runtime_frame.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

// Frames that are looked at for what a lock belongs to: those of the library around the wait.
constexpr int kMaxLibraryFrames = 12;
// Frames that are looked at for the initializer that a thread is in.
constexpr int kMaxFrames = 64;
// Functions whose static variables are waited for: each of them has all stacks looked through.
constexpr size_t kMaxStaticVariables = 16;

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
      "queue_stack", "nptl_free_tcb", "pthread_create_2_1", "pthread_create", "start_thread",
      // Where these are not known by name: what was called.
      "pthread_join", "pthread_tryjoin_np", "pthread_timedjoin_np", "pthread_clockjoin_np", "pthread_detach"};
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

// Functions of glibc that take the lock of the time zone, and those that are called with it.
bool AnyTakesTimeZone(const std::set<std::string>& names) {
  return names.contains("tz_convert") || names.contains("tzset");
}
bool AnyHasTimeZone(const std::set<std::string>& names) {
  return std::ranges::any_of(
      names, [](const std::string& name) { return name == "tzset_internal" || name.starts_with("tzfile_"); });
}

bool IsGuard(std::string_view name) { return name == "cxa_guard_acquire"; }

// Functions that call an initializer.
bool IsOnce(std::string_view name) {
  return name == "pthread_once_slow" || name == "pthread_once" || name.ends_with("::futex::Once::call") ||
         name == "parking_lot::once::Once::call_once_slow";
}

// The function that asked for a one-time initialization which the stack is in from `begin` on; nullopt if it is in none.
std::optional<std::string> OnceCaller(const v1::Stack& stack, int begin) {
  const int end = std::min(stack.frames_size(), begin + kMaxFrames);
  for (int i = begin; i < end; ++i) {
    if (stack.frames(i).function().empty() || !IsOnce(Name(stack.frames(i)))) continue;
    const int caller = FindProgramFrame(stack, i + 1);
    return caller < 0 ? std::string() : PlainFunctionOf(stack.frames(caller));
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
    // The lock itself says more than the stacks.
    if (thread->wait().owner() == Wait::KNOWN || thread->wait().owner() == Wait::GONE) return;
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
      const bool time_zones = AnyTakesTimeZone(names) && AnyHasTimeZone(interrupted);
      const auto same = std::ranges::find_if(
          interrupted, [&](const std::string& name) { return names.contains(name) && !name.starts_with("lll_"); });
      if (!allocators && !time_zones && same == interrupted.end()) continue;
      const std::string what = allocators ? "malloc" : time_zones ? "tzset" : *same;
      SetOwner(thread->tid(), what + " was called in a signal handler that interrupted " + what + " in the same thread",
               thread);
      return;
    }
  }

  // Finds the owner of the lock of glibc's stack cache, which is held while surplus stacks are unmapped.
  void StackCache(v1::Thread* waiter) {
    if (!stack_freers_) stack_freers_ = FindStackFreers();
    if (stack_freers_->size() == 1) SetOwner(stack_freers_->front(), "it gives back stacks of ended threads", waiter);
  }

  static bool FreesStacks(const v1::Stack& stack) {
    const std::set<std::string> names = LibraryFunctions(stack, 0);
    if (names.contains("nptl_free_stacks") || names.contains("free_stacks")) return true;
    // Where libc's own functions have no names: what joins a thread and unmaps something.
    return names.contains("munmap") && std::ranges::any_of(names, [](std::string_view name) {
             return name.starts_with("pthread_") && name.find("join") != name.npos;
           });
  }

  std::vector<int32_t> FindStackFreers() const {
    std::vector<bool> frees(dump_.stacks_size());
    for (int i = 0; i < dump_.stacks_size(); ++i) {
      frees[i] = FreesStacks(dump_.stacks(i));
    }
    std::vector<int32_t> tids;
    for (const v1::Thread& thread : dump_.threads()) {
      const bool is_free = StackOf(thread) != nullptr && thread.wait().kind() != Wait::INTERNAL_LOCK;
      if (is_free && frees[thread.stack()]) tids.push_back(thread.tid());
    }
    return tids;
  }

  // Where to begin to look in the stack of thread `index` for what it is in the middle of: behind what it waits for.
  int BehindWait(int index) const {
    const bool waits = dump_.threads(index).wait().kind() == Wait::ONCE && functions_[index] != nullptr;
    return waits ? functions_[index]->end_frame : 0;
  }

  // The threads that are in an initializer, which may wait for another one, by the function that asked for it.
  std::map<std::string, std::vector<int32_t>> FindInitializers() const {
    std::map<std::string, std::vector<int32_t>> tids;
    std::map<std::pair<int, int>, std::optional<std::string>> places;  // by stack, and where in it to begin
    for (int i = 0; i < dump_.threads_size(); ++i) {
      const v1::Thread& thread = dump_.threads(i);
      const v1::Stack* stack = StackOf(thread);
      if (stack == nullptr) continue;
      const auto [place, is_new] = places.try_emplace({thread.stack(), BehindWait(i)});
      if (is_new) place->second = OnceCaller(*stack, BehindWait(i));
      if (place->second) tids[*place->second].push_back(thread.tid());
    }
    return tids;
  }

  void Once(const v1::Stack& stack, const WaitFunction& function, v1::Thread* thread) {
    const int caller_frame = FindProgramFrame(stack, function.end_frame);
    if (caller_frame < 0) return;
    const std::string caller = PlainFunctionOf(stack.frames(caller_frame));
    if (IsGuard(Name(stack.frames(function.end_frame - 1)))) return StaticVariable(caller, thread);
    if (!initializers_) initializers_ = FindInitializers();
    const auto at_same_place = initializers_->find(caller);
    const bool is_only_one = initializers_->size() == 1 && initializers_->begin()->second.size() == 1;
    const bool is_only_here = at_same_place != initializers_->end() && at_same_place->second.size() == 1;
    if (!is_only_one && !is_only_here) return;
    const int32_t tid = is_only_here ? at_same_place->second[0] : initializers_->begin()->second[0];
    if (tid == thread->tid()) return SetOwner(tid, "the initializer asks for its own initialization", thread);
    // Elsewhere one function may initialize one object after the other.
    if (is_only_one || IsStatic(thread->wait())) SetOwner(tid, "it is in the initializer", thread);
  }

  // Finds the thread that initializes a static variable: it is in the function that the variable belongs to.
  void StaticVariable(const std::string& function, v1::Thread* waiter) {
    if (static_owners_.size() >= kMaxStaticVariables && !static_owners_.contains(function)) return;
    const auto [owner, is_new] = static_owners_.try_emplace(function);
    if (is_new) owner->second = FindInside(function);
    const std::vector<int32_t>& tids = owner->second;
    if (tids.size() == 1 && IsStatic(waiter->wait())) SetOwner(tids[0], "it is in the initializer", waiter);
  }

  // The threads that have `function` on their stacks without waiting there.
  std::vector<int32_t> FindInside(const std::string& function) const {
    std::vector<int32_t> tids;
    for (int i = 0; i < dump_.threads_size(); ++i) {
      const v1::Stack* stack = StackOf(dump_.threads(i));
      if (stack == nullptr) continue;
      const int behind_wait = BehindWait(i);
      const int begin = behind_wait == 0 ? 0 : FindProgramFrame(*stack, behind_wait) + 1;
      const int end = std::min(stack->frames_size(), begin + kMaxFrames);
      for (int frame = begin; frame < end; ++frame) {
        if (PlainFunctionOf(stack->frames(frame)) != function) continue;
        tids.push_back(dump_.threads(i).tid());
        break;
      }
    }
    return tids;
  }

  bool IsStatic(const Wait& wait) const {
    return !wait.futex_address().empty() && places_.IsStatic(std::stoull(wait.futex_address(), nullptr, 16));
  }

  const std::vector<const WaitFunction*>& functions_;
  const WaitPlaces& places_;
  v1::Dump& dump_;
  // Found when they are needed first.
  std::optional<std::vector<int32_t>> stack_freers_;
  std::optional<std::map<std::string, std::vector<int32_t>>> initializers_;
  std::map<std::string, std::vector<int32_t>> static_owners_;
};

}  // namespace

void InferOwners(const std::vector<const WaitFunction*>& functions, const WaitPlaces& places, v1::Dump* dump) {
  OwnerInference(functions, places, dump).Run();
}

}  // namespace stackd
