// One connected process: its fds, its ring, its modules, and the captures made of it.
//
// Three kinds of threads meet here: the collector's server thread reads the socket (OnMessage, OnClosed), the thread that
// serves a request captures (CaptureThreads), and those of the CrashIntake take a crash. Each member says whose it is.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/counters.h"
#include "daemon/collect/agent_questions.h"
#include "daemon/collect/asked_waits.h"
#include "daemon/collect/collector.h"
#include "daemon/collect/heartbeats.h"
#include "daemon/collect/message_socket.h"
#include "daemon/collect/task_tables.h"
#include "daemon/collect/wait_sample.h"
#include "daemon/crashes/spool_intake.h"
#include "daemon/process/confirm_waits.h"
#include "daemon/process/memory_reader.h"
#include "daemon/process/module_loader.h"
#include "daemon/process/process_files.h"
#include "daemon/ring/recording.h"
#include "daemon/ring/ring.h"
#include "daemon/ring/ring_reader.h"
#include "stackd/wire.h"

namespace stackd {

// What a message asks of the collector.
enum class AgentRequest { kNothing, kDump, kCrash, kModules, kPrefetch };

class AgentSession {
 public:
  // `peer_uid` is the kernel's word; everything in `hello` is the process's, and so is what `process` was made of.
  // `spool_file`, which may be nullptr, is let go when nothing more is to come out of the ring.
  AgentSession(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessDescription process, ProcessFiles files,
               std::unique_ptr<Ring> ring, ModuleCache* modules, CollectorCounters* counters,
               std::unique_ptr<HeldSpoolFile> spool_file, MemoryBudgets* budgets);

  int socket_fd() const { return socket_.get(); }
  const std::string& id() const { return id_; }
  uid_t peer_uid() const { return peer_uid_; }
  // Whether the process obeys commands.
  bool is_awake() const { return is_awake_.load(); }
  bool connected() const { return connected_.load(); }
  const Ring& ring() const { return *ring_; }
  ProcessDescription Describe() const;
  bool IsProcessOf(const ProcessFiles& files) const { return files_->IsSameProcess(files); }

  // Server thread. False: the message makes no sense, drop the connection. What of its fds is not taken stays in it.
  // A dump is a request only of a process that has not asked too often.
  bool OnMessage(ReceivedMessage* message, AgentRequest* request);
  void OnClosed();

  // Any thread; one at a time, the next waits. See Collector::CaptureProcess.
  Result<std::shared_ptr<Capture>> CaptureThreads(CaptureRequest request);
  void SayDumpIsRead();
  // Any thread; see Collector.
  Result<std::shared_ptr<Capture>> Outline() const;
  // Any thread. Where every thread waits on a futex, takes the calls of those that did so at different moments only:
  // else it would be said that no thread is left to act in a process that is at work.
  void DropWaitsThatEnded(Capture* capture);
  // Any thread. See Collector::ConfirmWaits.
  void DropEndedCyclesOfRuntimes(const LookAtLocks& look, int64_t deadline_ns, Capture* capture);
  // Any thread. Loads the modules that are mapped now, if nobody has, so that they are known when the process has ended.
  void LoadModulesEarly();

  // Any thread; see Collector.
  // `gives_way`: as in SampleWaits.
  Result<std::vector<ThreadMotion>> ReadMotion(bool gives_way);
  // Numbers that change when a thread of the process has run for long enough; empty: not known. The process takes no part.
  std::vector<int64_t> ReadProcessMotion() const;
  // `gives_way`: ends when a capture wants to run, or the process crashes.
  Result<std::vector<ThreadWait>> SampleWaits(int64_t deadline_ns, bool gives_way);
  Result<std::vector<FutexWord>> ReadFutexes(std::vector<FutexWait> waits);
  std::vector<WaitedFd> DescribeFds(std::span<const int32_t> fds, int64_t deadline_ns) {
    return questions_->DescribeFds(fds, deadline_ns);
  }
  Result<SigtermSigns> ReadSigtermSigns();
  std::vector<Heartbeat> Heartbeats() const { return ReadHeartbeats(*ring_); }
  // Whether thread `tid`, as `waiter` counts threads, is of this process, and this process has mapped `memory`.
  bool HasThreadAndMemory(int32_t tid, const AgentSession& waiter, const SharedMemory& memory, int64_t deadline_ns) const;
  // Its pid as the daemon counts; 0: not known for certain.
  int32_t PidForDaemon() const;
  // `tid` 0: of the process.
  char StateOf(int32_t tid) const;

  // Any thread. Takes the records that lie in the ring, and after the end of the connection those as well that the process
  // did not take back. True once in its life: when there is a crash, which the caller is to capture.
  bool TakeCrash();
  // After TakeCrash gave true: loads the modules that are mapped, if they are not known. False: the process is still there
  // and has not answered by the deadline, so this is to be tried again while it is held. Without that the crash may have
  // other names than its like.
  bool LoadModulesOfCrash(int64_t deadline_ns, std::vector<std::string>* notes);
  // Once, after that, with its notes. The other threads are asked if the process is still there and nobody is in a hurry.
  // nullptr: what it has mapped is not known, it has ended, and it has left a file that says all: that is to be taken in.
  std::shared_ptr<Capture> CaptureCrash(int64_t deadline_ns, std::vector<std::string> notes,
                                        const std::function<bool()>& in_a_hurry);
  // The crash is on disk: lets the process die.
  void ReleaseCrash();

 private:
  class RingListener;

  bool MayAskForDump();
  void SetFiltered(bool filtered);
  void KeepBell(ReceivedMessage* message);
  void KeepMemory(ReceivedMessage* message);
  // Where the process has passed its memory while it was dumped.
  void AwaitMemory() const;
  Share share() const;
  // Has a thread of the agent started in the process, if none runs.
  void Wake();
  void AwaitAwake(int64_t deadline_ns);
  // Whether none runs, and the process blocks the signal that would start it.
  bool StaysAsleep();
  bool KeepReportFile(ReceivedMessage* message);
  // What the process's runtime wrote when it ended; with the end of the connection it is whole.
  std::optional<RuntimeReport> ReadReport();
  std::shared_ptr<Capture> CaptureReport(RuntimeReport report);
  Result<std::vector<uint8_t>> ReadImage(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns);
  void LoadModules(int64_t deadline_ns, std::vector<std::string>* notes);
  void SendCommand(uint32_t command, const CaptureRequest& request);
  // Takes all records that are ready: those of a dump go to the recording that runs, a crash is kept.
  void Drain();
  void KeepCrash(CrashRecord record);
  void SetCrashPhase(uint32_t phase);
  // Runs a dump of the threads into `recording` and puts all but the stacks into `capture`. With capture_mutex_.
  void RunDump(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording,
               Capture* capture);
  void Finish(Recording* recording, Capture* capture);
  // Reads the ring until the dump is over, for whatever reason.
  void Record(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording);
  // Whether its helper looks at its threads when it is told to.
  bool TakesCommands() const;
  // With capture_mutex_: has the process run a command that is no dump, whose records `look` gets; or why not, an errno.
  template <typename T>
  Result<int> Look(uint32_t command, int64_t deadline_ns, bool gives_way, T** listener, T* look);
  Result<int> AwaitLook(int64_t deadline_ns, bool gives_way);
  Result<std::vector<ThreadMotion>> AskMotion(bool gives_way);
  void RememberThreads(const std::set<int32_t>& tids);
  void RememberThreads(const std::vector<ThreadCapture>& threads);
  // Those that are there, or were when it was looked; with the names that are known.
  std::map<int32_t, std::string> KnownThreads() const;
  // Put into `capture` what its threads wait for. Need no mutex.
  void AddWaits(int64_t deadline_ns, Capture* capture);
  void LookAtHolders(int64_t deadline_ns, Capture* capture);
  void AddWaitFacts(int64_t deadline_ns, Capture* capture);
  // What `calls` wait for; fails with the reason.
  Result<WaitFacts> ReadFacts(RwlockLayout layout, std::vector<ThreadCall> calls, int64_t deadline_ns);
  // Whether what may not be read is told by the process itself.
  bool TellsWaits() const;
  // Takes calls that make circles from threads that have gone on, or of which that is not clear.
  void DropEndedCycles(std::vector<ThreadCall> calls, int64_t deadline_ns, Capture* capture);
  // Reads the locks of `capture` anew, while its threads sleep; those of runtimes by `look`, if there is one.
  void ConfirmWaits(std::vector<ThreadCall> calls, const LookAtLocks& look, int64_t deadline_ns, Capture* capture);
  void AddFdNames(int64_t deadline_ns, Capture* capture);
  void AddFileLocks(int64_t deadline_ns, Capture* capture);
  void AddTasks(int64_t deadline_ns, Capture* capture);
  bool IsStopped() const;
  // Gives a status to each thread that is known and nobody spoke for. How many are not known is noted.
  void AccountForTheRest(const CaptureRequest& request, Recording* recording, Capture* capture);
  void CountDrops();
  // Of a command that is done: why it could not be run, an errno; or 0.
  int Failure() const;
  // Shows, as a limit of the process, why nobody knows what its threads sleep in; "": that is known.
  void SetSampleLimit(std::string why);
  std::shared_ptr<const AddressMap> Map() const;

  const Fd socket_;
  const uid_t peer_uid_;
  const std::string id_;
  // Who chose no level shares more when a runtime needs it.
  const bool shares_as_needed_;
  const std::shared_ptr<ProcessFiles> files_;
  const std::shared_ptr<const MemoryReader> memory_;
  const std::unique_ptr<Ring> ring_;
  CollectorCounters* const counters_;
  ByteBudget* const stacks_budget_;
  std::atomic<bool> connected_{true};
  std::atomic<int64_t> closed_ns_{0};
  std::atomic<int32_t> thread_count_{0};
  // Threads of the last look or dump.
  mutable std::mutex threads_mutex_;
  std::map<int32_t, std::string> thread_names_;

  mutable std::mutex description_mutex_;
  ProcessDescription description_;
  int32_t dump_signal_;
  const int32_t first_tid_;
  // Else no command is sent to it: its memory is read, and that is all.
  const bool has_handler_;
  const bool is_goroutine_;
  // Rings while no thread of the agent runs in the process.
  std::mutex bell_mutex_;
  Fd bell_;
  uint64_t sigterm_count_avma_ = 0;
  int32_t wake_signal_ = 0;
  std::atomic<bool> is_awake_;
  // The process does not answer, since it has put a filter of system calls on itself.
  std::atomic<bool> is_filtered_{false};

  // Of the server thread: when the process will have asked for no more dumps than it may.
  int64_t dump_requests_paid_ns_ = 0;

  // Written by the server thread, read behind the end of the connection.
  std::mutex report_mutex_;
  Fd report_file_;
  RuntimeReport report_;  // without its text
  // Of the crash intake: a crash that no handler saw.
  std::optional<RuntimeReport> crash_report_;

  const std::shared_ptr<AgentQuestions> questions_;  // shared with what reads memory
  const AskedWaits asked_waits_;
  TaskTables task_tables_;

  // Of the capturing thread.
  std::timed_mutex capture_mutex_;
  // Who has the mutex, or waits for it, for a capture. A sample gives way to it.
  std::atomic<int> captures_wanted_{0};
  ModuleLoader loader_;
  uint32_t map_generation_ = 0;
  uint32_t seq_ = 0;
  uint64_t dropped_seen_[STACKD_DROP_REASONS] = {};

  // Written by the capturing thread, and of use to whoever comes too late to capture.
  mutable std::mutex map_mutex_;
  std::shared_ptr<const AddressMap> map_;

  // Whoever drains the ring.
  std::mutex ring_mutex_;
  RingReader reader_;
  Recording* recording_ = nullptr;     // of the dump that runs
  WaitSample* sample_ = nullptr;       // of the sample that runs
  MotionLook* motion_look_ = nullptr;  // of the look that runs
  std::optional<CrashRecord> crash_;
  bool crash_claimed_ = false;
  std::atomic<bool> crashed_{false};

  // Last, so that it goes first: closing the files above may wait.
  std::unique_ptr<HeldSpoolFile> spool_file_;
};

}  // namespace stackd
