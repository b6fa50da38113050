// Looks at all connected processes, again and again, and says which of them hang.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/detect/rules/rules.h"
#include "daemon/detect/watch/probe.h"
#include "daemon/detect/watch/process_watch.h"
#include "daemon/detect/watch/suspicion.h"

namespace stackd {

struct DetectorOptions {
  Rules rules;
  std::function<void(SharedSuspicion)> on_suspicion;
  std::function<void(const std::string& process_id)> on_gone;
  // For how long a look takes.
  std::function<int64_t()> clock = MonotonicNs;
  // CPU time of the thread that looks.
  std::function<int64_t()> cpu_clock = [] { return ClockNs(CLOCK_THREAD_CPUTIME_ID); };
};

// A look is a step of its own, so that tests need no time to pass. Thread-safe, but for Look.
class Detector {
 public:
  // `probe` must outlive the detector.
  Detector(ProcessProbe* probe, DetectorOptions options);
  ~Detector();

  // Looks at what is due at `now_ns`, which only grows. Gives the time of the next look.
  int64_t Look(int64_t now_ns);
  // Does so on a thread of its own, until Stop.
  void Start();
  // Ends the looks: no process is suspected any more.
  void Stop();

  // Notes that the process is going to be captured. Gives what is known of its threads by the last look. Looks again where
  // a thread may have the number of one that ended. Like AfterCapture, does not wait for the thread that looks.
  std::map<int32_t, ThreadPast> BeforeCapture(const std::string& process_id);
  // Notes that it was captured just now.
  void AfterCapture(const std::string& process_id);

  // Threads that had run at the last look, since the look before; nullopt: its threads were not looked at.
  std::optional<int32_t> MovingThreads(const std::string& process_id) const;

  std::map<std::string, int64_t> Counters() const;

 private:
  void Run();
  void Refresh(int64_t now_ns);
  void LookAtHeartbeats(int64_t now_ns);
  void LookAtThreads(int64_t now_ns);
  void Account(int64_t now_ns, int64_t used_cpu_ns);
  void LookAgain(const std::string& process_id, std::map<int32_t, ThreadWatch::Past>* pasts) const;

  ProcessProbe* const probe_;
  const DetectorOptions options_;
  DetectCounters counters_;

  // Only the thread that looks uses these.
  std::map<std::string, std::unique_ptr<ProcessWatch>> watches_;
  int64_t refreshed_ns_ = 0;
  int64_t window_begin_ns_ = 0;
  int64_t window_cpu_ns_ = 0;
  int64_t stretch_ = 1;
  std::string last_looked_;  // at whose threads
  std::string last_asked_;   // about its heartbeats

  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::map<std::string, int> captured_;  // how often it was told of each
  std::map<std::string, std::map<int32_t, ThreadWatch::Past>> pasts_;
  std::atomic<int64_t> cpu_ns_{0};
  std::thread thread_;
};

}  // namespace stackd
