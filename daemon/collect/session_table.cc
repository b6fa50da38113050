#include "daemon/collect/session_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

// The time for all processes that have locks which a capture waits for, together.
constexpr int64_t kNameProcessesNs = 100 * kNsPerMs;

}  // namespace

void SessionTable::Add(std::shared_ptr<AgentSession> session) {
  std::lock_guard lock(mutex_);
  sessions_.push_back(std::move(session));
}

void SessionTable::Remove(const std::shared_ptr<AgentSession>& session) {
  std::lock_guard lock(mutex_);
  std::erase(sessions_, session);
}

std::shared_ptr<AgentSession> SessionTable::Find(const std::string& id) const {
  std::lock_guard lock(mutex_);
  auto it = std::ranges::find(sessions_, id, &AgentSession::id);
  return it == sessions_.end() ? nullptr : *it;
}

std::vector<std::shared_ptr<AgentSession>> SessionTable::All() const {
  std::lock_guard lock(mutex_);
  return sessions_;
}

void SessionTable::NameProcesses(const AgentProcess& waiter, Capture* capture) const {
  NameFutexOwners(waiter, capture);
  NameFileLockers(capture);
}

void SessionTable::NameFutexOwners(const AgentProcess& waiter, Capture* capture) const {
  const int64_t deadline_ns = MonotonicNs() + kNameProcessesNs;
  std::vector<std::shared_ptr<AgentSession>> others;
  for (FutexWord& word : capture->futexes) {
    const int32_t tid = HolderOf(word);
    const bool is_own = std::ranges::find(capture->threads, tid, &ThreadCapture::tid) != capture->threads.end();
    if (!word.is_shared || tid == 0 || is_own || word.shared_memory == SharedMemory{}) continue;
    if (others.empty()) others = All();
    for (const auto& other : others) {
      if (&other->process() == &waiter || MonotonicNs() >= deadline_ns) continue;
      if (!other->process().HasThreadAndMemory(tid, waiter, word.shared_memory, deadline_ns)) continue;
      const ProcessDescription process = other->process().Describe();
      word.owner_pid = process.pid;
      word.owner_process_name = process.display_name;
      break;
    }
  }
}

void SessionTable::NameFileLockers(Capture* capture) const {
  std::multimap<int32_t, LockingProcess*> unnamed;
  for (FileLock& lock : capture->file_locks) {
    if (lock.holder.pid > 0) unnamed.emplace(lock.holder.pid, &lock.holder);
    for (LockingProcess& process : lock.cycle) unnamed.emplace(process.pid, &process);
  }
  if (unnamed.empty()) return;
  const int64_t deadline_ns = MonotonicNs() + kNameProcessesNs;
  for (const auto& session : All()) {
    if (MonotonicNs() >= deadline_ns) return;
    const auto [begin, end] = unnamed.equal_range(session->process().PidForDaemon());
    for (auto process = begin; process != end; ++process) {
      process->second->name = session->process().Describe().display_name;
    }
  }
}

}  // namespace stackd
