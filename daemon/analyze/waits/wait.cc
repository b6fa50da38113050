#include "daemon/analyze/waits/wait.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/analyze/code/syscall_site.h"
#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/futex_operation.h"
#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/analyze/names/syscall_name.h"
#include "daemon/analyze/names/thread_stop.h"
#include "daemon/analyze/waits/file_lock_owner.h"
#include "daemon/analyze/waits/infer_owner.h"
#include "daemon/analyze/waits/python_lock.h"
#include "daemon/analyze/waits/reused_tid.h"
#include "daemon/analyze/waits/wait_function.h"
#include "daemon/analyze/waits/wait_graph.h"
#include "daemon/analyze/waits/wait_owner.h"
#include "daemon/analyze/waits/wait_place.h"
#include "daemon/analyze/waits/wait_syscall.h"
#include "daemon/analyze/waits/wait_words.h"
#include "daemon/base/clock.h"
#include "daemon/base/printable.h"
#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

// Limit for the fds of one wait: as many as are told of a poll.
constexpr int kMaxFds = 64;

// Whether what is waited for has no owner, and any thread that can reach it may bring it.
bool IsForEvent(Wait::Kind kind) {
  return kind == Wait::CONDITION_VARIABLE || kind == Wait::SEMAPHORE || kind == Wait::BARRIER || kind == Wait::ATOMIC ||
         kind == Wait::FUTEX;
}

std::string Hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof(text), "0x%lx", value);
  return text;
}

class WaitExplainer {
 public:
  WaitExplainer(const Capture& capture, const DataSymbolLookup& data_symbols, v1::Dump* dump)
      : capture_(capture),
        dump_(*dump),
        futexes_(ByAddress(capture.futexes)),
        places_(capture, data_symbols, LockAddresses()),
        functions_of_stack_(dump->stacks_size()) {
    for (const ThreadCapture& thread : capture.threads) tids_.insert(thread.tid);
    for (const WaitedFd& fd : capture.fds) fds_.emplace(fd.fd, &fd);
    for (int i = 0; i < dump->threads_size(); ++i) index_of_tid_.emplace(dump->threads(i).tid(), i);
  }

  void Run() {
    const int count = std::min<int>(dump_.threads_size(), static_cast<int>(capture_.threads.size()));
    waiting_on_.assign(dump_.threads_size(), nullptr);
    calls_.resize(dump_.threads_size());
    for (int i = 0; i < count; ++i) Describe(i);
    DropReusedOwners(capture_, &dump_);
    for (const ManagedWait& wait : capture_.managed.waits) DescribeManaged(wait);
    InferOwners(waiting_on_, places_, &dump_);
    CountWaiters();
    for (int i = 0; i < count; ++i) Explain(i);
  }

 private:
  using Futexes = std::unordered_map<uint64_t, const FutexWord*>;

  static Futexes ByAddress(const std::vector<FutexWord>& words) {
    Futexes futexes;
    for (const FutexWord& futex : words) futexes.emplace(futex.avma, &futex);
    return futexes;
  }

  // Addresses of what threads wait on, and of the locks around it.
  std::set<uint64_t> LockAddresses() const {
    std::set<uint64_t> avmas;
    for (const ThreadCapture& thread : capture_.threads) {
      const auto address = thread.call ? WaitedFutex(*thread.call) : std::nullopt;
      if (!address) continue;
      avmas.insert(*address);
      const auto futex = futexes_.find(*address);
      if (futex == futexes_.end()) continue;
      if (futex->second->mutex) avmas.insert(*address - futex->second->mutex->futex_offset);
      if (futex->second->rwlock) avmas.insert(futex->second->rwlock->avma);
    }
    return avmas;
  }

  const v1::Stack* StackOf(const v1::Thread& thread) const {
    const bool has_stack = thread.has_stack() && thread.stack() >= 0 && thread.stack() < dump_.stacks_size();
    return has_stack ? &dump_.stacks(thread.stack()) : nullptr;
  }

  const WaitFunction* FunctionOf(const v1::Thread& thread) {
    const v1::Stack* stack = StackOf(thread);
    if (stack == nullptr) return nullptr;
    std::optional<WaitFunction>& function = functions_of_stack_[thread.stack()];
    if (!function) function = FindWaitFunction(*stack);
    return &*function;
  }

  // What is known of the call that the thread is in; the code before its program counter tells the number at least.
  std::optional<SystemCall> CallOf(const ThreadCapture& thread, const WaitFunction* function) {
    if (thread.call) return thread.call;
    if (capture_.map == nullptr || !thread.has_stack) return std::nullopt;
    const uint64_t pc_avma = thread.registers.value[Registers::kRip];
    const auto [entry, is_new] = call_at_.try_emplace({pc_avma, function});
    if (is_new) {
      const auto site = ReadSyscallSite(*capture_.map, pc_avma);
      // Where the code does not tell the number (syscall(2)), a function that waits means futex(2).
      const bool waits = function != nullptr && function->kind != Wait::KIND_UNSPECIFIED;
      if (site && site->in_syscall && (site->number || waits)) {
        entry->second = SystemCall{.number = site->number.value_or(SYS_futex)};
      }
    }
    return entry->second;
  }

  // Whether the thread wakes others, by the functions on its stack, where the arguments of futex(2) are not known.
  bool WakesOthers(const v1::Thread& thread) const {
    const v1::Stack* stack = StackOf(thread);
    return stack != nullptr && IsWakeFunction(*stack);
  }

  void Describe(int index) {
    const ThreadCapture& captured = capture_.threads[index];
    v1::Thread& thread = *dump_.mutable_threads(index);
    thread.clear_wait();
    const bool crashed = capture_.crash && capture_.crash->tid == captured.tid;
    if (captured.status == ThreadStatus::kExited || crashed) return;
    calls_[index] = CallOf(captured, FunctionOf(thread));
    const std::optional<SystemCall>& call = calls_[index];
    if (call && call->number == SYS_sched_yield) return;  // runs, or waits for a core
    if (call && call->number == SYS_futex && !call->knows(1) && WakesOthers(thread)) return;
    if (IsStopped(captured)) {
      thread.mutable_wait()->set_kind(Wait::STOP);
      thread.mutable_wait()->set_owner(Wait::NONE);
    } else if (captured.status == ThreadStatus::kUninterruptible || captured.kernel_state == 'D') {
      thread.mutable_wait()->set_kind(Wait::DISK);
      thread.mutable_wait()->set_owner(Wait::NONE);
    } else if (call && call->number == SYS_futex) {
      DescribeFutex(index, *call, thread.mutable_wait());
    } else if (call) {
      DescribeCall(*call, captured, thread.mutable_wait());
    } else {
      return;
    }
    if (captured.unmoved_ns >= 0) {
      thread.mutable_wait()->mutable_duration()->set_seconds(captured.unmoved_ns / kNsPerSecond);
      thread.mutable_wait()->mutable_duration()->set_nanos(static_cast<int32_t>(captured.unmoved_ns % kNsPerSecond));
    }
  }

  void DescribeCall(const SystemCall& call, const ThreadCapture& thread, Wait* wait) {
    const SyscallWait described = DescribeSyscallWait(call);
    wait->set_kind(described.kind);
    wait->set_owner(Wait::NONE);
    wait->set_timed(described.timed);
    if (const auto lock_kind = WaitedFileLock(call)) {
      const WaitOwner owner = FileLockOwner(*lock_kind, FindFileLock(capture_, thread));
      wait->set_owner(owner.owner);
      wait->set_owner_note(owner.note);
    }
    for (int32_t number : thread.waited_fds.empty() ? WaitedFds(call) : thread.waited_fds) {
      if (wait->fds_size() == kMaxFds) break;
      v1::WaitedFd& fd = *wait->add_fds();
      fd.set_fd(number);
      if (const auto known = fds_.find(number); known != fds_.end()) fd.set_name(FdName(*known->second));
    }
  }

  static std::string FdName(const WaitedFd& fd) {
    std::string name = PrintableText(fd.name);
    if (fd.watched_count == 0) return name;
    return name + " of " + std::to_string(fd.watched_count) + (fd.watched_count == 1 ? " fd" : " fds");
  }

  void DescribeFutex(int index, const SystemCall& call, Wait* wait) {
    const v1::Thread& thread = dump_.threads(index);
    const WaitFunction* function = FunctionOf(thread);
    const std::optional<uint64_t> address = WaitedFutex(call);
    const bool names_another = call.knows(1) && !address;
    if (names_another) {  // wakes other threads: in the kernel for an instant only
      wait->set_kind(Wait::SYSTEM_CALL);
      wait->set_owner(Wait::NONE);
      return;
    }
    const auto known = address ? futexes_.find(*address) : futexes_.end();
    const FutexWord* futex = known == futexes_.end() ? nullptr : known->second;
    const auto [kind, maker] = KindOfFutexWait(thread.tid(), call, futex, function);
    waiting_on_[index] = function;
    wait->set_kind(kind);
    // What the kernel was told decides: musl waits without a limit in functions that may have one.
    wait->set_timed(call.knows(3) ? call.arguments[3] != 0 : function != nullptr && function->timed);
    const WaitOwner owner = FindWaitOwner(kind, maker, thread.tid(), &call, futex, tids_);
    wait->set_owner(owner.owner);
    wait->set_owner_tid(owner.tid);
    wait->set_owner_note(owner.note);
    if (const v1::Stack* stack = StackOf(thread); kind == Wait::SEMAPHORE && stack != nullptr && IsPythonLock(*stack)) {
      wait->set_kind(Wait::MUTEX);
      wait->set_owner(Wait::NOT_RECORDED);
      wait->set_owner_note("owner unknown: who has a lock of Python's is not read");
    }
    if (function != nullptr && !function->owner_note.empty()) {
      wait->set_owner(Wait::NOT_RECORDED);
      wait->set_owner_note(std::string(function->owner_note));
    }
    if (futex != nullptr && futex->is_shared && IsForEvent(kind)) {
      wait->set_owner(Wait::OTHER_PROCESS);
      wait->set_owner_note("processes share it, and whether one is left that will act is not known");
    }
    if (call.knows(1)) wait->set_futex_operation(FutexOperationName(static_cast<uint32_t>(call.arguments[1])));
    if (kind == Wait::FUTEX && wait->owner() == Wait::NOT_RECORDED) {
      wait->set_lock_kind(kRoomInChannel);
      return;  // the thread sleeps on a word of its own
    }
    if (!address) return;
    wait->set_futex_address(Hex(*address));
    uint64_t lock_avma = *address;
    if (futex != nullptr) {
      wait->set_futex_value(futex->value);
      const bool is_rwlock = kind == Wait::RWLOCK_READ || kind == Wait::RWLOCK_WRITE;
      if (kind == Wait::INTERNAL_LOCK && futex->stdio_owner_tid != 0) wait->set_lock_kind("stdio lock");
      if (is_rwlock && futex->rwlock) lock_avma = futex->rwlock->avma;
      if (is_rwlock && futex->rwlock && futex->rwlock->prefers_writers) wait->set_lock_kind("prefers writers");
      if (kind == Wait::MUTEX && futex->mutex) {
        lock_avma -= futex->mutex->futex_offset;
        wait->set_lock_kind(MutexKindInWords(futex->mutex->kind));
      }
    }
    // These libraries have threads sleep on words of their own, and the lock is elsewhere.
    if (maker == LockMaker::kParkingLot || maker == LockMaker::kAbseil) return;
    wait->set_address(Hex(lock_avma));
    wait->set_place(places_.Of(lock_avma));
    // No lock of a program's is its own thread's alone, and zero at that.
    const bool own_zero = futex != nullptr && futex->value == 0 && places_.OwnerOfStack(*address) == thread.tid();
    if (kind == Wait::MUTEX && maker == LockMaker::kLibc && own_zero) SetRefused(wait);
  }

  // A runtime knows its own locks better than the words that its threads sleep on.
  void DescribeManaged(const ManagedWait& managed) {
    const auto known = index_of_tid_.find(managed.waiter_tid);
    if (known == index_of_tid_.end() || std::cmp_greater_equal(known->second, capture_.threads.size())) return;
    const int index = known->second;
    const ThreadCapture& captured = capture_.threads[index];
    if (captured.status == ThreadStatus::kExited || IsStopped(captured)) return;
    Wait& wait = *dump_.mutable_threads(index)->mutable_wait();
    wait.set_kind(static_cast<Wait::Kind>(managed.kind));
    // The waiter asks again and again until it has the lock.
    wait.set_timed(false);
    const bool is_known = tids_.contains(managed.owner_tid);
    wait.set_owner(is_known ? Wait::KNOWN : managed.owner_tid == 0 ? Wait::NONE : Wait::NOT_KNOWN);
    wait.set_owner_tid(is_known ? managed.owner_tid : 0);
    wait.clear_owner_note();
    if (managed.owner_tid == 0) {
      wait.set_owner_note(
          "no owner is known: it was free or changed hands when it was read, its owner has ended, or the wait ends after a "
          "time");
    } else if (!is_known) {
      wait.set_owner_note("owner unknown: the thread that has it is not in this dump");
    }
    wait.set_lock_kind(PrintableText(managed.lock));
    wait.clear_place();
    wait.clear_address();
    if (managed.lock_avma != 0) wait.set_address(Hex(managed.lock_avma));
    waiting_on_[index] = nullptr;
  }

  // What functions are named decides; where none is known, only words that leave no other reading do.
  std::pair<Wait::Kind, LockMaker> KindOfFutexWait(int32_t tid, const SystemCall& call, const FutexWord* futex,
                                                   const WaitFunction* function) const {
    if (function != nullptr && function->kind != Wait::KIND_UNSPECIFIED) return {function->kind, function->maker};
    if (futex == nullptr) return {Wait::FUTEX, LockMaker::kUnknown};
    const auto edge = EdgeOf(tid, call, *futex, tids_);
    if (!edge) return {Wait::FUTEX, LockMaker::kUnknown};
    if (futex->rwlock && edge->lock_avma != futex->avma) return {Wait::RWLOCK_WRITE, LockMaker::kLibc};
    const auto operation = static_cast<uint32_t>(call.arguments[1]);
    const bool is_private = (operation & 128) != 0;
    return {futex->mutex || is_private ? Wait::MUTEX : Wait::JOIN, LockMaker::kLibc};
  }

  // Waiters for the same lock, thread or event.
  void CountWaiters() {
    std::unordered_map<std::string, int> count;
    for (const v1::Thread& thread : dump_.threads()) {
      if (thread.has_wait() && !thread.wait().address().empty()) ++count[thread.wait().address()];
    }
    for (v1::Thread& thread : *dump_.mutable_threads()) {
      if (!thread.has_wait()) continue;
      const auto counted = count.find(thread.wait().address());
      thread.mutable_wait()->set_waiter_count(counted == count.end() ? 1 : counted->second);
    }
  }

  std::string CallName(int index) const {
    if (calls_[index]) return std::string(SyscallName(calls_[index]->number));
    return PrintableText(dump_.threads(index).wait_channel());
  }

  std::string Activity(int index) const {
    const v1::Thread& thread = dump_.threads(index);
    if (thread.has_wait()) return ShortWait(thread.wait(), CallName(index));
    const v1::Stack* stack = StackOf(thread);
    const int frame = stack == nullptr ? -1 : FindProgramFrame(*stack, 0);
    if (frame < 0) return thread.state();
    return thread.state() + " in " + PlainFunctionOf(stack->frames(frame));
  }

  void Explain(int index) {
    v1::Thread& thread = *dump_.mutable_threads(index);
    if (!thread.has_wait()) return;
    Wait& wait = *thread.mutable_wait();
    std::string owner;
    const auto owner_index = index_of_tid_.find(wait.owner_tid());
    if (wait.owner() == Wait::KNOWN && owner_index != index_of_tid_.end()) {
      owner = wait.owner_tid() == thread.tid() ? "this thread itself"
                                               : ThreadWithTid(dump_.threads(owner_index->second), dump_.process().pid());
      wait.set_owner_activity(Activity(owner_index->second));
    }
    wait.set_explanation(ExplainWait(wait, owner, CallName(index)));
  }

  const Capture& capture_;
  v1::Dump& dump_;
  const Futexes futexes_;
  const WaitPlaces places_;
  std::set<int32_t> tids_;
  std::unordered_map<int32_t, const WaitedFd*> fds_;
  std::vector<std::optional<WaitFunction>> functions_of_stack_;
  std::map<std::pair<uint64_t, const WaitFunction*>, std::optional<SystemCall>> call_at_;
  // By thread: what it waits in, if that is a futex; and its call.
  std::vector<const WaitFunction*> waiting_on_;
  std::vector<std::optional<SystemCall>> calls_;
  std::unordered_map<int32_t, int> index_of_tid_;
};

}  // namespace

void ExplainWaits(const Capture& capture, const DataSymbolLookup& data_symbols, v1::Dump* dump) {
  WaitExplainer(capture, data_symbols, dump).Run();
}

}  // namespace stackd
