#include "daemon/analyze/waits/wait_function.h"

#include <algorithm>
#include <array>

#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/runtime_frame.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

enum class Match { kWhole, kBegin, kEnd };

enum class Role {
  kBelow,    // what such functions call: says nothing yet
  kGeneric,  // waits, unless a function farther out says more
  kSpecific,
};

struct Entry {
  std::string_view name;  // as WaitFunctionName has it
  Match match;
  Role role;
  Wait::Kind kind = Wait::KIND_UNSPECIFIED;
  LockMaker maker = LockMaker::kUnknown;
  bool timed = false;
  std::string_view owner_note = {};  // as WaitFunction has it
};

constexpr auto kWhole = Match::kWhole;
constexpr auto kBegin = Match::kBegin;
constexpr auto kEnd = Match::kEnd;
constexpr auto kBelow = Role::kBelow;
constexpr auto kGeneric = Role::kGeneric;
constexpr auto kSpecific = Role::kSpecific;
constexpr auto kLibc = LockMaker::kLibc;
constexpr auto kCxx = LockMaker::kCxx;
constexpr auto kRust = LockMaker::kRust;
constexpr std::string_view kDestroyed = "it is to be destroyed when no thread waits on it any more";
constexpr std::string_view kReceiver = "which thread is to receive from it is not recorded";

// The first entry that matches counts.
//
// glibc: names of 2.17 to 2.36, those that it exports and those that only its debug file has (nptl/, sysdeps/nptl/).
constexpr Entry kGlibc[] = {
    {"syscall", kWhole, kBelow},
    {"futex_wait", kBegin, kBelow},  // also futex_wait_simple, futex_wait_cancelable
    {"futex_abstimed_wait", kBegin, kBelow},
    {"futex_reltimed_wait", kBegin, kBelow},
    {"futex_lock_pi", kBegin, kBelow},
    {"do_futex_wait", kBegin, kBelow},
    {"lll_lock_wait_private", kWhole, kSpecific, Wait::INTERNAL_LOCK, kLibc},
    {"lll_lock_wait", kWhole, kGeneric, Wait::MUTEX, kLibc},
    {"lll_robust_lock_wait", kWhole, kGeneric, Wait::MUTEX, kLibc},
    {"lll_timedlock_wait", kWhole, kGeneric, Wait::MUTEX, kLibc, true},
    {"lll_clocklock_wait", kWhole, kGeneric, Wait::MUTEX, kLibc, true},
    {"pthread_mutex_lock", kBegin, kSpecific, Wait::MUTEX, kLibc},  // also pthread_mutex_lock_full
    {"pthread_mutex_cond_lock", kBegin, kSpecific, Wait::MUTEX, kLibc},
    {"pthread_mutex_timedlock", kBegin, kSpecific, Wait::MUTEX, kLibc, true},
    {"pthread_mutex_clocklock", kBegin, kSpecific, Wait::MUTEX, kLibc, true},
    {"pthread_rwlock_rdlock", kBegin, kSpecific, Wait::RWLOCK_READ, kLibc},
    {"pthread_rwlock_timedrdlock", kBegin, kSpecific, Wait::RWLOCK_READ, kLibc, true},
    {"pthread_rwlock_clockrdlock", kBegin, kSpecific, Wait::RWLOCK_READ, kLibc, true},
    {"pthread_rwlock_wrlock", kBegin, kSpecific, Wait::RWLOCK_WRITE, kLibc},
    {"pthread_rwlock_timedwrlock", kBegin, kSpecific, Wait::RWLOCK_WRITE, kLibc, true},
    {"pthread_rwlock_clockwrlock", kBegin, kSpecific, Wait::RWLOCK_WRITE, kLibc, true},
    {"pthread_cond_wait_common", kWhole, kGeneric, Wait::CONDITION_VARIABLE, kLibc},
    {"pthread_cond_wait", kWhole, kGeneric, Wait::CONDITION_VARIABLE, kLibc},
    {"pthread_cond_timedwait", kBegin, kGeneric, Wait::CONDITION_VARIABLE, kLibc, true},
    {"pthread_cond_clockwait", kBegin, kGeneric, Wait::CONDITION_VARIABLE, kLibc, true},
    {"pthread_cond_destroy", kWhole, kSpecific, Wait::CONDITION_VARIABLE, kLibc, false, kDestroyed},
    {"new_sem_wait_slow", kBegin, kGeneric, Wait::SEMAPHORE, kLibc},
    {"new_sem_wait", kBegin, kSpecific, Wait::SEMAPHORE, kLibc},
    {"sem_wait", kWhole, kSpecific, Wait::SEMAPHORE, kLibc},
    {"sem_timedwait", kBegin, kSpecific, Wait::SEMAPHORE, kLibc, true},
    {"sem_clockwait", kBegin, kSpecific, Wait::SEMAPHORE, kLibc, true},
    {"pthread_clockjoin_ex", kWhole, kSpecific, Wait::JOIN, kLibc},
    {"pthread_timedjoin_ex", kWhole, kSpecific, Wait::JOIN, kLibc},
    {"pthread_join", kWhole, kSpecific, Wait::JOIN, kLibc},
    {"pthread_timedjoin_np", kBegin, kSpecific, Wait::JOIN, kLibc, true},
    {"pthread_clockjoin_np", kBegin, kSpecific, Wait::JOIN, kLibc, true},
    {"pthread_barrier_wait", kWhole, kSpecific, Wait::BARRIER, kLibc},
    {"pthread_once_slow", kWhole, kSpecific, Wait::ONCE, kLibc},
    {"pthread_once", kWhole, kSpecific, Wait::ONCE, kLibc},
};

// libstdc++ of gcc 12 (bits/atomic_wait.h, bits/atomic_futex.h, src/c++11, libsupc++/guard.cc) and libc++ of LLVM 14.
constexpr Entry kCxxLibraries[] = {
    {"std::__detail::__platform_wait_until", kBegin, kGeneric, Wait::ATOMIC, kCxx, true},
    {"std::__detail::__platform_wait", kWhole, kGeneric, Wait::ATOMIC, kCxx},
    {"std::__detail::__timed_waiter", kBegin, kGeneric, Wait::ATOMIC, kCxx, true},
    {"std::__detail::__waiter", kBegin, kGeneric, Wait::ATOMIC, kCxx},
    {"std::__atomic_wait_address_until", kBegin, kGeneric, Wait::ATOMIC, kCxx, true},
    {"std::__atomic_wait_address_for", kBegin, kGeneric, Wait::ATOMIC, kCxx, true},
    {"std::__atomic_wait_address", kBegin, kGeneric, Wait::ATOMIC, kCxx},
    {"std::__1::__libcpp_atomic_wait", kWhole, kGeneric, Wait::ATOMIC, kCxx},
    {"std::__1::__cxx_atomic_wait", kBegin, kGeneric, Wait::ATOMIC, kCxx},
    {"std::__atomic_semaphore::_M_try_acquire_", kBegin, kSpecific, Wait::SEMAPHORE, kCxx, true},
    {"std::__atomic_semaphore::_M_acquire", kWhole, kSpecific, Wait::SEMAPHORE, kCxx},
    {"std::counting_semaphore::acquire", kEnd, kSpecific, Wait::SEMAPHORE, kCxx},
    {"std::__tree_barrier::wait", kWhole, kSpecific, Wait::BARRIER, kCxx},
    {"std::barrier::wait", kWhole, kSpecific, Wait::BARRIER, kCxx},
    {"std::latch::wait", kWhole, kSpecific, Wait::ATOMIC, kCxx},
    {"std::__atomic_futex_unsigned_base::_M_futex_wait_until", kWhole, kGeneric, Wait::FUTURE, kCxx},
    {"std::__atomic_futex_unsigned_base::_M_futex_wait_until_steady", kWhole, kGeneric, Wait::FUTURE, kCxx},
    {"std::__future_base::_State_baseV2::wait_for", kWhole, kSpecific, Wait::FUTURE, kCxx, true},
    {"std::__future_base::_State_baseV2::wait_until", kWhole, kSpecific, Wait::FUTURE, kCxx, true},
    {"std::__future_base::_State_baseV2::wait", kWhole, kSpecific, Wait::FUTURE, kCxx},
    {"std::__1::__assoc_sub_state::wait", kWhole, kSpecific, Wait::FUTURE, kCxx},
    {"std::__1::__assoc_sub_state::__sub_wait", kWhole, kSpecific, Wait::FUTURE, kCxx},
    {"std::condition_variable::wait_for", kWhole, kSpecific, Wait::CONDITION_VARIABLE, kCxx, true},
    {"std::condition_variable::wait_until", kWhole, kSpecific, Wait::CONDITION_VARIABLE, kCxx, true},
    {"std::condition_variable::wait", kWhole, kSpecific, Wait::CONDITION_VARIABLE, kCxx},
    {"cxa_guard_acquire", kWhole, kSpecific, Wait::ONCE, kCxx},
};

// Rust's library from 1.62 on, when its locks became futexes; the paths of its modules have moved since. parking_lot 0.12,
// crossbeam-channel 0.5.
constexpr Entry kRustLibraries[] = {
    {"::futex::futex_wait", kEnd, kBelow},
    {"::futex_wait", kEnd, kBelow},
    {"::futex::Mutex::lock_contended", kEnd, kSpecific, Wait::MUTEX, kRust},
    {"::futex_mutex::Mutex::lock_contended", kEnd, kSpecific, Wait::MUTEX, kRust},
    {"::futex::RwLock::read_contended", kEnd, kSpecific, Wait::RWLOCK_READ, kRust},
    {"::futex_rwlock::RwLock::read_contended", kEnd, kSpecific, Wait::RWLOCK_READ, kRust},
    {"::futex::RwLock::write_contended", kEnd, kSpecific, Wait::RWLOCK_WRITE, kRust},
    {"::futex_rwlock::RwLock::write_contended", kEnd, kSpecific, Wait::RWLOCK_WRITE, kRust},
    {"::Condvar::wait_optional_timeout", kEnd, kGeneric, Wait::CONDITION_VARIABLE, kRust},
    {"::futex::Condvar::wait_timeout", kEnd, kSpecific, Wait::CONDITION_VARIABLE, kRust, true},
    {"::futex::Condvar::wait", kEnd, kGeneric, Wait::CONDITION_VARIABLE, kRust},
    {"::futex::Once::call", kEnd, kSpecific, Wait::ONCE, kRust},
    {"::futex::Once::wait", kEnd, kSpecific, Wait::ONCE, kRust},
    {"std::sync::barrier::Barrier::wait", kWhole, kSpecific, Wait::BARRIER, kRust},
    {"::Parker::park_timeout", kEnd, kGeneric, Wait::CONDITION_VARIABLE, kRust, true},
    {"::Parker::park", kEnd, kGeneric, Wait::CONDITION_VARIABLE, kRust},
    {"::mpmc::array::Channel::send", kEnd, kSpecific, Wait::FUTEX, kRust, false, kReceiver},
    {"::mpmc::zero::Channel::send", kEnd, kSpecific, Wait::FUTEX, kRust, false, kReceiver},
    {"crossbeam_channel::flavors::array::Channel::send", kWhole, kSpecific, Wait::FUTEX, kRust, false, kReceiver},
    {"crossbeam_channel::flavors::zero::Channel::send", kWhole, kSpecific, Wait::FUTEX, kRust, false, kReceiver},
    {"parking_lot_core::", kBegin, kBelow},
    {"parking_lot::raw_mutex::RawMutex::lock_slow", kWhole, kSpecific, Wait::MUTEX, LockMaker::kParkingLot},
    {"parking_lot::raw_rwlock::RawRwLock::lock_shared_slow", kWhole, kSpecific, Wait::RWLOCK_READ, LockMaker::kParkingLot},
    {"parking_lot::raw_rwlock::RawRwLock::wait_for_readers", kWhole, kSpecific, Wait::RWLOCK_WRITE, LockMaker::kParkingLot},
    {"parking_lot::raw_rwlock::RawRwLock::lock_exclusive_slow", kWhole, kSpecific, Wait::RWLOCK_WRITE,
     LockMaker::kParkingLot},
    {"parking_lot::raw_rwlock::RawRwLock::lock_common", kWhole, kGeneric, Wait::RWLOCK_WRITE, LockMaker::kParkingLot},
    {"parking_lot::condvar::Condvar::wait", kBegin, kSpecific, Wait::CONDITION_VARIABLE, LockMaker::kParkingLot},
    {"parking_lot::once::Once::call_once_slow", kWhole, kSpecific, Wait::ONCE, LockMaker::kParkingLot},
};

// musl (src/thread), Abseil (absl/synchronization), folly, Go's runtime (runtime/os_linux.go, lock_futex.go).
constexpr Entry kOthers[] = {
    {"syscall", kBegin, kBelow},  // syscall6, syscall_cp_c
    {"timedwait_cp", kWhole, kBelow},
    {"timedwait", kWhole, kBelow},
    {"AbslInternalPerThreadSemWait", kBegin, kBelow},
    {"absl::", kBegin, kGeneric, Wait::MUTEX, LockMaker::kAbseil},
    {"folly::SharedMutexImpl::lockExclusiveImpl", kBegin, kSpecific, Wait::RWLOCK_WRITE, LockMaker::kFolly},
    {"folly::SharedMutexImpl::lockSharedImpl", kBegin, kSpecific, Wait::RWLOCK_READ, LockMaker::kFolly},
    {"folly::detail::futexWait", kBegin, kBelow},
    {"runtime.futexsleep", kBegin, kBelow},
    {"runtime.futex", kBegin, kBelow},
    {"runtime.lock2", kWhole, kSpecific, Wait::INTERNAL_LOCK, LockMaker::kGo},
    {"runtime.notetsleep", kBegin, kGeneric, Wait::CONDITION_VARIABLE, LockMaker::kGo, true},
    {"runtime.notesleep", kWhole, kGeneric, Wait::CONDITION_VARIABLE, LockMaker::kGo},
};

bool Matches(const Entry& entry, std::string_view name) {
  switch (entry.match) {
    case Match::kWhole:
      return name == entry.name;
    case Match::kBegin:
      return name.starts_with(entry.name);
    case Match::kEnd:
      return name.ends_with(entry.name);
  }
  return false;
}

// Names with a scope are never those of C libraries, and the other way round.
const Entry* FindEntry(std::string_view name) {
  const auto find = [&](std::span<const Entry> entries) -> const Entry* {
    const auto found = std::ranges::find_if(entries, [&](const Entry& entry) { return Matches(entry, name); });
    return found == entries.end() ? nullptr : &*found;
  };
  for (std::span<const Entry> entries : {std::span<const Entry>(kGlibc), std::span<const Entry>(kCxxLibraries),
                                         std::span<const Entry>(kRustLibraries), std::span<const Entry>(kOthers)}) {
    if (const Entry* entry = find(entries)) return entry;
  }
  return nullptr;
}

// Abseil has one function for each of its waits, and they end in the same one.
void RefineAbseil(std::string_view name, WaitFunction* wait) {
  if (name.starts_with("absl::CondVar::")) wait->kind = Wait::CONDITION_VARIABLE;
  if (name == "absl::Mutex::ReaderLock") wait->kind = Wait::RWLOCK_READ;
  if (name.starts_with("absl::Mutex::Await") || name.starts_with("absl::Notification::Wait") ||
      name.starts_with("absl::BlockingCounter::Wait")) {
    wait->kind = Wait::CONDITION_VARIABLE;
  }
}

bool IsLibraryModule(std::string_view module) {
  constexpr std::string_view kModules[] = {"libc.so", "libc-2",         "libpthread", "ld-linux",
                                           "ld-musl", "libstdc++.so",   "libc++.so",  "libgcc_s.so",
                                           "[vdso]",  "libstackd_agent"};  // it starts threads for the program
  return std::ranges::any_of(kModules, [&](std::string_view name) { return module.starts_with(name); });
}

// "std::sync::Mutex::lock" for Rust's "<std::sync::Mutex>::lock" and "<std::sync::Mutex as Lock>::lock".
std::string WithoutImpl(std::string name) {
  if (!name.starts_with('<')) return name;
  int depth = 0;
  size_t as = name.npos, end = 0;
  for (; end < name.size(); ++end) {
    if (name[end] == '<') ++depth;
    if (name[end] == '>' && name[end - 1] != '-' && --depth == 0) break;
    if (depth == 1 && as == name.npos && name.compare(end, 4, " as ") == 0) as = end;
  }
  if (end >= name.size()) return name;
  std::string_view type = std::string_view(name).substr(1, std::min(as, end) - 1);
  for (std::string_view prefix : {"&", "mut ", "dyn "}) {
    if (type.starts_with(prefix)) type.remove_prefix(prefix.size());
  }
  return std::string(type) + name.substr(end + 1);
}

// A wait is among the innermost frames; recursion inside of it there is none.
constexpr int kMaxWaitFrames = 32;

}  // namespace

std::string WaitFunctionName(std::string_view function) {
  std::string name = WithoutImpl(PlainFunction(function));
  std::string_view rest = name;
  while (rest.starts_with('_')) rest.remove_prefix(1);
  constexpr std::string_view kInternal = "GI_";
  if (rest.starts_with(kInternal)) {
    rest.remove_prefix(kInternal.size());
    while (rest.starts_with('_')) rest.remove_prefix(1);
  }
  // Versions of the ABI that are part of names: std::_V2::condition_variable_any.
  constexpr std::string_view kVersion = "std::_V2::";
  if (rest.starts_with(kVersion)) return "std::" + std::string(rest.substr(kVersion.size()));
  return rest.size() == name.size() ? name : std::string(rest);
}

bool IsLibraryFrame(const v1::Frame& frame) {
  if (frame.function().empty()) return IsLibraryModule(frame.module());
  const std::string name = WaitFunctionName(frame.function());
  constexpr std::string_view kScopes[] = {
      "std::",         "gthread_",   "gnu_cxx::",          "core::",   "alloc::", "rust_",
      "parking_lot::", "lock_api::", "parking_lot_core::", "runtime.", "absl::",  "crossbeam_channel::"};
  return IsLibraryModule(frame.module()) || FindEntry(name) != nullptr ||
         std::ranges::any_of(kScopes, [&](std::string_view scope) { return name.starts_with(scope); });
}

ProgramFrames::ProgramFrames(const v1::Stack& stack) {
  v1::Language language = v1::LANGUAGE_UNSPECIFIED;
  for (const v1::Frame& frame : stack.frames()) {
    if (IsOfRuntime(frame)) language = frame.language();
    has_java_ = has_java_ || language == v1::JAVA;
    // A Go program is in one file with its runtime, and code made at run time is in none.
    const bool is_runtimes_file = frame.replaced() && language != v1::GO && !frame.module().starts_with('[');
    if (is_runtimes_file) runtime_module_ = frame.module();
  }
}

bool ProgramFrames::Contains(const v1::Frame& frame) const {
  if (IsOfRuntime(frame)) return true;
  if (frame.function().empty() || frame.replaced() || IsLibraryFrame(frame)) return false;
  if (has_java_ && frame.module() == "libjvm.so") return false;
  return runtime_module_.empty() || frame.module() != runtime_module_;
}

int FindProgramFrame(const v1::Stack& stack, int begin) {
  const ProgramFrames program(stack);
  for (int i = begin; i < stack.frames_size(); ++i) {
    if (program.Contains(stack.frames(i))) return i;
  }
  return -1;
}

bool IsWakeFunction(const v1::Stack& stack) {
  constexpr std::string_view kBegins[] = {"lll_lock_wake", "lll_mutex_unlock", "futex_wake", "lll_futex_wake"};
  constexpr std::string_view kNames[] = {"pthread_mutex_unlock",  "pthread_mutex_unlock_usercnt",
                                         "pthread_cond_signal",   "pthread_cond_broadcast",
                                         "pthread_rwlock_unlock", "sem_post",
                                         "new_sem_post"};
  for (const v1::Frame& frame : stack.frames()) {
    if (frame.function().empty()) {
      if (IsLibraryFrame(frame)) continue;
      return false;
    }
    const std::string name = WaitFunctionName(frame.function());
    if (name == "syscall") continue;
    return std::ranges::find(kNames, name) != std::end(kNames) ||
           std::ranges::any_of(kBegins, [&](std::string_view begin) { return name.starts_with(begin); });
  }
  return false;
}

WaitFunction FindWaitFunction(const v1::Stack& stack) {
  WaitFunction wait;
  bool open = true;  // a function farther out may say more
  const int end = std::min(stack.frames_size(), kMaxWaitFrames);
  for (int i = 0; i < end; ++i) {
    const v1::Frame& frame = stack.frames(i);
    // What is farther out was interrupted by a signal, and does not wait.
    if (i > 0 && frame.origin() == v1::Frame::SIGNAL_FRAME) break;
    // However a function of another language is called, it is no library's. Go's runtime is Go.
    if (IsOfRuntime(frame) && frame.language() != v1::GO) break;
    const std::string name = WaitFunctionName(frame.function());
    const Entry* entry = frame.function().empty() ? nullptr : FindEntry(name);
    if (entry == nullptr) {
      if (IsLibraryFrame(frame)) continue;
      break;
    }
    if (entry->role == Role::kBelow) continue;
    if (open) {
      wait.timed = entry->timed || (wait.timed && wait.kind == entry->kind);
      wait.kind = entry->kind;
      wait.maker = entry->maker;
      wait.owner_note = entry->owner_note;
      open = entry->role == Role::kGeneric;
    } else if (wait.kind != entry->kind) {
      // Another wait's function around this one, as of a thread that joins one inside of std::call_once().
      break;
    } else {
      wait.timed = wait.timed || entry->timed;
    }
    if (wait.maker == LockMaker::kAbseil) RefineAbseil(name, &wait);
    wait.end_frame = i + 1;
  }
  return wait;
}

}  // namespace stackd
