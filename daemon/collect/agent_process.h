// The process at the other end of a connection: who it is, its files, and whether it can be asked.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/capture/capture.h"
#include "daemon/collect/agent_questions.h"
#include "daemon/collect/message_socket.h"
#include "daemon/process/memory_reader.h"
#include "daemon/process/process_files.h"
#include "stackd/wire.h"

namespace stackd {

// The reason why a process that has a filter of system calls is not asked.
inline constexpr std::string_view kFilteredLimit =
    "it has put a filter of system calls (seccomp) on itself, which could end it for a call of the agent's; start it with "
    "STACKD_SECCOMP_DUMPS=1 if the filter allows them";
// The reason why a process that cannot be woken is not asked.
inline constexpr std::string_view kAsleepLimit =
    "no thread of the agent runs in it, since it has none of its own, and it blocks the signal that starts one (SIGURG)";

// Whether a thread of the agent runs in its process and answers, and what starts one. Thread-safe.
class AgentWaker {
 public:
  AgentWaker(const ProcessFiles* files, bool has_bell) : files_(files), is_awake_(!has_bell) {}

  // Whether the process obeys commands.
  bool is_awake() const { return is_awake_.load(); }
  // Whether the process does not answer, since it has put a filter of system calls on itself.
  bool is_filtered() const { return is_filtered_.load(); }
  bool answers() const { return is_awake() && !is_filtered(); }
  // Whether no thread of the agent runs, and the process blocks the signal that would start one.
  bool StaysAsleep() const;
  // Where the process counts the SIGTERMs that it took, by its BELL; 0: not known.
  uint64_t sigterm_count_avma() const;

  // Has the agent start a thread, if none runs.
  void Wake();
  void AwaitAwake(int64_t deadline_ns) const;

  // The server thread: BELL, which may lack its socket, AWAKE (false: it was awake), FILTERED, and the end.
  void OnBell(ReceivedMessage* message);
  bool OnAwake() { return !is_awake_.exchange(true); }
  void SetFiltered(bool is_filtered) { is_filtered_.store(is_filtered); }
  void OnClosed() { is_closed_.store(true); }

 private:
  const ProcessFiles* const files_;
  std::atomic<bool> is_awake_;
  std::atomic<bool> is_filtered_{false};
  std::atomic<bool> is_closed_{false};

  mutable std::mutex mutex_;  // guards what BELL brought
  Fd bell_;
  int32_t wake_signal_ = 0;
  uint64_t sigterm_count_avma_ = 0;
};

// Thread-safe.
class AgentProcess {
 public:
  // The kernel says `peer_uid`. Everything in `hello` is the process's word, and so is what `description` was made of.
  AgentProcess(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessDescription description, ProcessFiles files);

  int socket_fd() const { return socket_.get(); }
  uid_t peer_uid() const { return peer_uid_; }
  const std::string& id() const { return id_; }
  int32_t dump_signal() const { return dump_signal_; }
  // Whether a goroutine obeys commands, and of commands DUMP alone.
  bool is_goroutine() const { return is_goroutine_; }
  // Whether it shares more when a runtime needs it, since its owner chose no level.
  bool shares_as_needed() const { return shares_as_needed_; }

  const ProcessFiles& files() const { return *files_; }
  const std::shared_ptr<const MemoryReader>& memory() const { return memory_; }
  AgentQuestions& questions() const { return *questions_; }
  AgentWaker& waker() { return waker_; }
  const AgentWaker& waker() const { return waker_; }

  bool connected() const { return connected_.load(); }
  // When the connection ended; 0: it has not.
  int64_t closed_ns() const { return closed_ns_.load(); }
  bool IsStopped() const;
  // 'R', 'S', 'D', 'T', ...; 0: not known. `tid` 0: the process.
  char StateOf(int32_t tid) const;
  // Its pid as the daemon counts; 0: not known for certain.
  int32_t PidForDaemon() const;
  // Whether its helper looks at its threads when it is told to.
  bool TakesCommands() const { return !is_goroutine_ && waker_.answers(); }
  // Whether what may not be read is told by the process itself.
  bool TellsWaits() const;
  // Whether thread `tid`, as `waiter` counts threads, is of this process, and this process has mapped `memory`.
  bool HasThreadAndMemory(int32_t tid, const AgentProcess& waiter, const SharedMemory& memory, int64_t deadline_ns) const;

  ProcessDescription Describe() const;
  Share share() const;
  // How long its first thread has run; nullopt: not known.
  std::optional<ThreadSchedStat> FirstSchedStat() const { return files_->FirstSchedStat(first_tid_); }
  // Numbers that change when a thread of the process has run for long enough; empty: not known. The process takes no part.
  std::vector<int64_t> ReadProcessSchedStats() const;

  // The threads of the last look or dump.
  void RememberThreads(const std::set<int32_t>& tids);
  void RememberThreads(const std::vector<ThreadCapture>& threads);
  void SetThreadCount(size_t count) { thread_count_.store(static_cast<int32_t>(count)); }
  // Threads that are there, or were when the process was looked at last; with the names that are known.
  std::map<int32_t, std::string> KnownThreads() const;
  // Shows, as a limit of the process, why it is not known what its threads sleep in; "": that is known.
  void SetSampleLimit(const std::string& why);

  // The server thread. What of a message's fds is not taken stays in it.
  void OnName(const stackd_name& name);
  void OnMemory(ReceivedMessage* message);
  void OnFiltered(bool is_filtered);
  void OnClosed();

 private:
  // Replaces the limits that begin with `limit` by `text`, if there is one.
  void SetLimit(std::string_view limit, const std::string& text);

  const Fd socket_;
  const uid_t peer_uid_;
  const std::string id_;
  const int32_t first_tid_;
  const int32_t dump_signal_;
  const bool is_goroutine_;
  const bool shares_as_needed_;
  const std::shared_ptr<ProcessFiles> files_;
  const std::shared_ptr<const MemoryReader> memory_;
  const std::shared_ptr<AgentQuestions> questions_;  // shared with what reads memory
  AgentWaker waker_;
  std::atomic<bool> connected_{true};
  std::atomic<int64_t> closed_ns_{0};
  std::atomic<int32_t> thread_count_{0};

  mutable std::mutex description_mutex_;  // guards description_
  ProcessDescription description_;

  mutable std::mutex threads_mutex_;  // guards thread_names_
  std::map<int32_t, std::string> thread_names_;
};

}  // namespace stackd
