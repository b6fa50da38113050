#include "daemon/outside/thread_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/run_beside.h"
#include "daemon/base/text.h"
#include "daemon/outside/procfs_text.h"
#include "daemon/outside/stopped_thread.h"

extern "C" {
#include "agent/dump/procfs_task.h"
#include "agent/dump/quiet_read.h"
#include "agent/sys/private_fd.h"
}

namespace stackd {
namespace {

// A thread that moved while its stack was copied is copied again.
constexpr int kTries = 3;
// A thread that has a core, or gets one soon, stops within microseconds.
constexpr int64_t kMaxStopNs = 250 * kNsPerMs;

// What rax holds in a call that a stop has interrupted and that the kernel makes again (linux/errno.h).
bool IsRestarted(uint64_t rax) {
  const auto error = -static_cast<int64_t>(rax);
  return (error >= 512 && error <= 514) || error == 516;
}

std::string Count(int64_t count, const char* noun) { return std::to_string(count) + " " + noun + (count == 1 ? "" : "s"); }

StatusRecord RecordOf(int32_t tid) {
  StatusRecord record;
  record.seq = AgentCode::kSeq;
  record.tid = static_cast<uint32_t>(tid);
  return record;
}

std::string WaitChannel(const LiveProcess& process, uint32_t tid, char state) {
  char channel[32] = "";
  stackd_task_read_wait_channel(process.tasks_fd(), tid, channel);
  // Some kernels have the freezer's function in its caller, where a thread sleeps for no other reason.
  const bool is_freezer = state == 'S' && strcmp(channel, "get_signal") == 0;
  return is_freezer ? "do_freezer_trap" : FieldText(channel);
}

// Where the kernel keeps threads of a frozen cgroup, of either version.
bool IsFreezer(const std::string& channel) { return channel == "do_freezer_trap" || channel.ends_with("__refrigerator"); }

}  // namespace

ThreadReader::ThreadReader(const LiveProcess& process, std::unique_ptr<AgentCode> agent)
    : process_(process), agent_(std::move(agent)) {}

ThreadReader::~ThreadReader() { stackd_read_memory_by(nullptr); }

Result<std::unique_ptr<ThreadReader>> ThreadReader::Start(const LiveProcess& process, uint32_t max_stack_bytes) {
  // Where process_vm_readv is refused, as some filters of system calls have it, the file tells the same.
  static stackd_own_fd memory_file;
  struct stat status;
  if (fstat(process.memory_fd(), &status) == 0) {
    memory_file = {process.memory_fd(), status.st_dev, status.st_ino};
    stackd_read_memory_by(&memory_file);
  }
  auto agent = AgentCode::SetOn(process.pid(), process.maps_fd(), max_stack_bytes);
  if (!agent) return std::unexpected(agent.error());
  return std::unique_ptr<ThreadReader>(new ThreadReader(process, std::move(*agent)));
}

stackd_capture ThreadReader::Begin(int32_t tid) const {
  stackd_capture capture = agent_->Begin(tid);
  stackd_task_read_name(process_.tasks_fd(), capture.tid, capture.name);
  return capture;
}

int ThreadReader::WriteAsleep(const stackd_quiet_look& look) const {
  stackd_capture capture = Begin(static_cast<int32_t>(look.tid));
  capture.flags = STACKD_THREAD_BY_HELPER;
  capture.cpu_ns = look.cpu_ns;
  capture.thread_self = stackd_quiet_thread_self(look.tid);
  capture.regs[STACKD_REG_RSP] = look.sleep.rsp;
  capture.regs[STACKD_REG_RIP] = look.sleep.rip;
  capture.call = look.sleep.call;
  stackd_ring_writer writer;
  if (const int error = stackd_capture_begin(&capture, &writer); error != 0) return error;
  if (!stackd_quiet_is_whole(&look)) {
    stackd_ring_abandon(&writer);
    return -EAGAIN;
  }
  stackd_ring_commit(&writer);
  return 0;
}

int ThreadReader::WriteStopped(int32_t tid, const user_regs_struct& registers, int64_t since_ns) const {
  stackd_capture capture = Begin(tid);
  capture.begin_ns = static_cast<uint64_t>(since_ns);
  AgentCode::FillRegisters(registers, &capture);
  stackd_task_schedstat stats;
  const int stats_fd = stackd_task_open_schedstat(process_.tasks_fd(), capture.tid);
  if (stats_fd >= 0 && stackd_task_read_schedstat(stats_fd, &stats) == 0) capture.cpu_ns = stats.cpu_ns;
  if (stats_fd >= 0) stackd_own_fd_drop(stats_fd);
  if (static_cast<int64_t>(registers.orig_rax) >= 0 && IsRestarted(registers.rax)) AgentCode::FillCall(registers, &capture);
  return stackd_capture_write(&capture);
}

void ThreadReader::AddReason(int32_t tid, ThreadStatus reason, Recording* recording) const {
  StatusRecord record = RecordOf(tid);
  record.status = static_cast<uint8_t>(reason);
  stackd_task_status status;
  if (reason != ThreadStatus::kExited && stackd_task_read_status(process_.tasks_fd(), record.tid, &status) == 0) {
    record.kernel_state = StateLetter(status.state);
  }
  char name[16] = "";
  stackd_task_read_name(process_.tasks_fd(), record.tid, name);
  record.name = FieldText(name);
  recording->OnStatus(std::move(record));
}

void ThreadReader::AddState(int32_t tid, Recording* recording) const {
  StatusRecord record = RecordOf(tid);
  stackd_task_status status;
  if (stackd_task_read_status(process_.tasks_fd(), record.tid, &status) != 0) return;
  record.kernel_state = StateLetter(status.state);
  record.wait_channel = WaitChannel(process_, record.tid, status.state);
  if (status.state == 'T' || status.state == 't' || IsFreezer(record.wait_channel)) {
    record.status = STACKD_STATUS_STOPPED;
  } else if (status.state == 'D') {
    record.status = STACKD_STATUS_UNINTERRUPTIBLE;
  } else {
    return;
  }
  recording->OnStatus(std::move(record));
}

ThreadReader::Sight ThreadReader::ReadAsleep(int32_t tid, int tries, Recording* recording) {
  for (int i = 0; i < tries; i++) {
    stackd_quiet_look look;
    int error = stackd_quiet_begin(&look, process_.tasks_fd(), static_cast<uint32_t>(tid));
    if (error == -ENOENT || error == -ESRCH) return Sight::kEnded;
    if (error != 0) continue;
    const bool in_call = (look.sleep.call.known & STACKD_SYSCALL_KNOWN) != 0;
    const bool may_be_more = looks_at_states_ || !in_call || stackd_call_may_be_uninterruptible(&look.sleep.call);
    error = WriteAsleep(look);
    stackd_quiet_end(&look);
    if (error == -ENOSPC) return Sight::kNoRoom;
    if (error != 0) continue;
    if (may_be_more) AddState(tid, recording);
    agent_->Take(recording);
    return Sight::kRead;
  }
  return Sight::kRuns;
}

void ThreadReader::ReadStopped(int32_t tid, int64_t deadline_ns, Recording* recording) {
  // It may have fallen asleep meanwhile, in a call that a stop could end.
  const Sight sight = ReadAsleep(tid, 1, recording);
  if (sight == Sight::kRead) return;
  if (sight == Sight::kEnded) return AddReason(tid, ThreadStatus::kExited, recording);
  const int64_t begin_ns = MonotonicNs();
  std::optional<StoppedThread> stopped(std::in_place, tid, std::min(deadline_ns, begin_ns + kMaxStopNs));
  const StopOutcome outcome = stopped->outcome();
  const auto registers = outcome == StopOutcome::kStopped ? stopped->ReadRegisters() : std::nullopt;
  const bool read = registers && WriteStopped(tid, *registers, begin_ns) == 0;
  stopped.reset();
  if (read) return agent_->Take(recording);
  if (outcome == StopOutcome::kTraced) refused_++;
  if (outcome == StopOutcome::kTooLong) too_long_++;
  AddReason(tid, outcome == StopOutcome::kEnded ? ThreadStatus::kExited : ThreadStatus::kRunning, recording);
}

void ThreadReader::ReadRunning(std::span<const int32_t> tids, int64_t deadline_ns, Recording* recording) {
  // On a thread of its own. With its end the kernel lets go of those that did not stop in time.
  std::jthread tracer = RunBeside([&] {
    for (const int32_t tid : tids) {
      if (MonotonicNs() < deadline_ns) {
        ReadStopped(tid, deadline_ns, recording);
      } else {
        AddReason(tid, ThreadStatus::kTimedOut, recording);
      }
    }
  });
}

void ThreadReader::ReadAll(bool may_stop, int64_t deadline_ns, Recording* recording) {
  const char state = process_.files()->State();
  const std::string status = ReadProcfsText(process_.path() + "/status");
  looks_at_states_ = state == 'T' || state == 't' || NumberIn(status, "TracerPid") != 0 ||
                     IsFreezer(WaitChannel(process_, static_cast<uint32_t>(process_.pid()), state));
  std::vector<int32_t> running;
  const std::vector<int32_t> tids = process_.files()->Tids();
  recording->listed = static_cast<uint32_t>(tids.size());
  for (const int32_t tid : tids) {
    if (MonotonicNs() >= deadline_ns) {
      AddReason(tid, ThreadStatus::kTimedOut, recording);
      continue;
    }
    switch (ReadAsleep(tid, kTries, recording)) {
      case Sight::kRead:
        break;
      case Sight::kRuns:
        running.push_back(tid);
        break;
      case Sight::kEnded:
        AddReason(tid, ThreadStatus::kExited, recording);
        break;
      case Sight::kNoRoom:
        AddReason(tid, ThreadStatus::kRingFull, recording);
        break;
    }
  }
  if (may_stop && !running.empty()) return ReadRunning(running, deadline_ns, recording);
  for (const int32_t tid : running) AddReason(tid, ThreadStatus::kRunning, recording);
}

void ThreadReader::AddNotes(std::vector<std::string>* notes) const {
  if (too_long_ > 0) notes->push_back(Count(too_long_, "thread") + " that ran did not stop to be read in time");
  if (refused_ > 0) notes->push_back(Count(refused_, "thread") + " that ran could not be stopped to be read");
}

std::vector<ThreadWait> ThreadReader::SampleWaits(int64_t deadline_ns) const {
  std::vector<ThreadWait> sample;
  for (const int32_t tid : process_.files()->Tids()) {
    if (MonotonicNs() >= deadline_ns) break;
    stackd_task_sleep sleep;
    if (stackd_task_read_sleep(process_.tasks_fd(), static_cast<uint32_t>(tid), &sleep) != 0) continue;
    sample.push_back({.tid = tid, .rsp_avma = sleep.rsp, .rip_avma = sleep.rip, .call = ParseCall(sleep.call)});
  }
  return sample;
}

}  // namespace stackd
