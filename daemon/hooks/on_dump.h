// Runs a program of the operator's for each stored dump: to send a message, to copy the dump away.
//
// Uses no shell, and passes nothing that a watched process chose. The argument is the dump's name. The environment adds
// STACKD_TRIGGER ("CRASH") and STACKD_ADDRESS, where stackctl finds this daemon. Programs run one at a time, with a limit
// of time and of rate: a storm of dumps must not become a storm of programs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

struct OnDumpOptions {
  std::string program;                 // a path
  std::string address;                 // for STACKD_ADDRESS
  std::string asked_by = "--on-dump";  // in sentences about it
  int64_t timeout_ns = 30 * kNsPerSecond;
  // So many at once, and one more for each interval.
  int64_t burst = 10;
  int64_t interval_ns = kNsPerSecond;
};

// Thread-safe.
class OnDump {
 public:
  // Fails with one sentence if the program cannot be run.
  static Result<std::unique_ptr<OnDump>> Start(OnDumpOptions options);
  // Kills a program that runs.
  ~OnDump();

  // Does not block. Beyond the limits, counts the dump and does nothing else.
  void Add(const std::string& dump_name, const std::string& trigger);

  int64_t runs() const { return runs_.load(); }
  int64_t failures() const { return failures_.load(); }
  int64_t dropped() const { return dropped_.load(); }

 private:
  struct Task {
    std::string dump_name;
    std::string trigger;
  };

  explicit OnDump(OnDumpOptions options);
  bool MayRun();
  void Run();
  void RunProgram(const Task& task);

  const OnDumpOptions options_;
  Fd stop_event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  int64_t paid_ns_ = 0;  // when there will have been no more runs than there may be
  bool stopping_ = false;
  std::atomic<int64_t> runs_{0}, failures_{0}, dropped_{0};
  std::thread thread_;
};

}  // namespace stackd
