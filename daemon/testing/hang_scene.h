// For tests: captures and dumps of hung processes, made by hand.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/analyze/findings/finding.h"
#include "daemon/analyze/waits/wait.h"
#include "daemon/capture/capture.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

inline constexpr int32_t kScenePid = 100;

class HangScene {
 public:
  HangScene() {
    capture_.process.pid = kScenePid;
    dump_.mutable_process()->set_pid(kScenePid);
  }

  Capture& capture() { return capture_; }
  v1::Dump& dump() { return dump_; }
  ThreadCapture& captured(int32_t tid) { return capture_.threads[Index(tid)]; }
  const v1::Wait& wait(int32_t tid) { return dump_.threads(Index(tid)).wait(); }

  // Functions innermost first; "name@module" for one that is not of the program, "!name" for one that a signal interrupted.
  v1::Thread& AddThread(int32_t tid, std::string name, std::initializer_list<std::string_view> functions) {
    ThreadCapture& captured = capture_.threads.emplace_back();
    captured.tid = tid;
    captured.name = name;
    captured.status = ThreadStatus::kCaptured;
    captured.has_stack = true;
    v1::Thread& thread = *dump_.add_threads();
    thread.set_tid(tid);
    thread.set_name(std::move(name));
    thread.set_status(v1::Thread::CAPTURED);
    thread.set_state("running");
    thread.set_stack(dump_.stacks_size());
    v1::Stack& stack = *dump_.add_stacks();
    for (std::string_view function : functions) {
      v1::Frame& frame = *stack.add_frames();
      if (function.starts_with('!')) {
        frame.set_origin(v1::Frame::SIGNAL_FRAME);
        function.remove_prefix(1);
      }
      const size_t at = function.find('@');
      frame.set_function(std::string(function.substr(0, at)));
      frame.set_module(at == function.npos ? "bank" : std::string(function.substr(at + 1)));
    }
    return thread;
  }

  void SetCall(int32_t tid, uint32_t number, std::initializer_list<uint64_t> arguments) {
    SystemCall call{.number = number};
    for (uint64_t argument : arguments) {
      call.arguments[__builtin_popcount(call.known_arguments)] = argument;
      call.known_arguments = call.known_arguments << 1 | 1;
    }
    captured(tid).call = call;
    dump_.mutable_threads(Index(tid))->set_state("in a system call");
  }

  void SetFutexCall(int32_t tid, uint64_t avma, uint32_t operation = FUTEX_WAIT_PRIVATE) {
    SetCall(tid, SYS_futex, {avma, operation});
  }

  FutexWord& AddWord(uint64_t avma, uint32_t value) {
    capture_.futexes.push_back({.avma = avma, .value = value});
    return capture_.futexes.back();
  }

  void AddMutex(uint64_t avma, int32_t owner_tid, int32_t kind = 0) {
    AddWord(avma, 2).mutex = PthreadMutex{.owner_tid = owner_tid, .users = 1, .kind = kind};
  }

  // A thread that waits in `function` for the mutex at `avma`.
  void AddLocker(int32_t tid, std::string name, std::string_view function, uint64_t avma) {
    AddThread(tid, std::move(name),
              {"futex_wait@libc.so.6", "__lll_lock_wait@libc.so.6", "___pthread_mutex_lock@libc.so.6", function,
               "start_thread@libc.so.6"});
    SetFutexCall(tid, avma);
  }

  void AddSleeper(int32_t tid, std::string name, std::string_view function) {
    AddThread(tid, std::move(name), {"__GI___clock_nanosleep@libc.so.6", function, "start_thread@libc.so.6"});
    SetCall(tid, SYS_clock_nanosleep, {CLOCK_MONOTONIC, 0});
  }

  void Explain(const DataSymbolLookup& data_symbols = {}) {
    ExplainWaits(capture_, data_symbols, &dump_);
    FindHangs(capture_, &dump_);
  }

  // The first finding of the kind; an empty one if there is none.
  v1::Finding Finding(v1::Finding::Kind kind) const {
    for (const v1::Finding& finding : dump_.findings()) {
      if (finding.kind() == kind) return finding;
    }
    return {};
  }

 private:
  int Index(int32_t tid) const {
    for (int i = 0; i < dump_.threads_size(); ++i) {
      if (dump_.threads(i).tid() == tid) return i;
    }
    abort();
  }

  Capture capture_;
  v1::Dump dump_;
};

}  // namespace stackd
