// What a crash still needs when it is on disk and its process was let go: stacks, names, the finished dump.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/symbolize/perf_map_file.h"

namespace stackd {

// A stored crash. Without `capture` its raw copy is to be read from the store. So many crashes at once take no more memory
// than kMaxBytes, and crashes that a dead daemon left behind need nothing else.
struct UnfinishedCrash {
  std::string dump_name;
  std::shared_ptr<Capture> capture;
  std::shared_ptr<const PerfMapFile> perf_map;  // nullptr: the process had none
};

// Thread-safe. In a storm of crashes it waits until that is over, for two seconds at most: the CPUs are for those whose
// processes are held.
class CrashBacklog {
 public:
  static constexpr size_t kMaxBytes = 64u << 20;

  // `finish` is called on `threads` threads.
  CrashBacklog(int threads, std::function<void(UnfinishedCrash)> finish);
  // What is not begun stays in the store, for the next daemon.
  ~CrashBacklog();

  // Does not block. Done when the backlog has lived for so long, and nothing else is to be done: it may end the daemon.
  static constexpr int64_t kLaterNs = 10'000'000'000;
  void AddLater(UnfinishedCrash crash);

  // Does not block. False: the capture was let go, because there are too many of them.
  bool Add(UnfinishedCrash crash);

  size_t waiting() const;

 private:
  struct Waiting {
    UnfinishedCrash crash;
    size_t bytes;
    int64_t since_ns;
  };

  void Run();
  void AwaitWork(std::unique_lock<std::mutex>& lock);
  bool InAStorm() const;

  const std::function<void(UnfinishedCrash)> finish_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable stopped_;
  std::deque<Waiting> crashes_;
  std::deque<UnfinishedCrash> later_;
  const int64_t later_from_ns_;
  size_t bytes_ = 0;
  int64_t last_added_ns_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace stackd
