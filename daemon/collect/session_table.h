// The sessions of all connected processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/collect/agent_session.h"

namespace stackd {

// Thread-safe.
class SessionTable {
 public:
  void Add(std::shared_ptr<AgentSession> session);
  void Remove(const std::shared_ptr<AgentSession>& session);
  // nullptr: the process is not connected.
  std::shared_ptr<AgentSession> Find(const std::string& id) const;
  // Oldest first. The last reference to a session may wait when it is dropped (deferred_close.h).
  std::vector<std::shared_ptr<AgentSession>> All() const;
  // Calls `look` for each, oldest first, and keeps no reference. `look` must not block.
  template <typename Look>
  void ForEach(Look look) const {
    std::lock_guard lock(mutex_);
    for (const auto& session : sessions_) look(*session);
  }

  // Names the connected processes that `capture`, of `waiter`, has by numbers alone: owners of shared futexes, and of file
  // locks.
  void NameProcesses(const AgentProcess& waiter, Capture* capture) const;

 private:
  void NameFutexOwners(const AgentProcess& waiter, Capture* capture) const;
  void NameFileLockers(Capture* capture) const;

  mutable std::mutex mutex_;  // guards sessions_
  std::vector<std::shared_ptr<AgentSession>> sessions_;
};

}  // namespace stackd
