// The dumps that processes ask for of themselves.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/capture/counters.h"
#include "daemon/collect/capture_request.h"

namespace stackd {

// Thread-safe.
class OwnDumpQueue {
 public:
  explicit OwnDumpQueue(CollectorCounters* counters) : counters_(counters) {}
  ~OwnDumpQueue() { Stop(); }

  // Queues a dump, or refuses it, which is counted.
  void Add(OwnDumpRequest request);
  // Once: calls `handler` on threads of its own, for one dump of each process at a time.
  void Start(std::function<void(const OwnDumpRequest&)> handler);
  // Waits for the dumps that run.
  void Stop();

 private:
  void Run();

  CollectorCounters* const counters_;
  std::function<void(const OwnDumpRequest&)> handler_;

  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable changed_;
  std::deque<OwnDumpRequest> requests_;
  std::set<std::string> running_;  // process ids
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace stackd
