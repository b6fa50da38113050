// Loads the modules of processes before anybody asks for a dump.
//
// A process that has ended shows no maps and opens no files: of one that dies without being held (its own handler ends it,
// or somebody kills it in the middle) there would be addresses and no names.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "daemon/collect/agent_session.h"

namespace stackd {

// Thread-safe.
class ModulePrefetcher {
 public:
  ModulePrefetcher();
  ~ModulePrefetcher();

  // They do not block. In a second: a process that ends at once is spared.
  void Add(std::weak_ptr<AgentSession> agent);
  // Now: one of its threads waits for that.
  void AddUrgent(std::weak_ptr<AgentSession> agent);

 private:
  struct Task {
    std::weak_ptr<AgentSession> agent;
    int64_t due_ns;
  };

  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::deque<std::weak_ptr<AgentSession>> urgent_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace stackd
