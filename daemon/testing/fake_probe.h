// Processes that do not exist, for tests: what they are said to do, they do.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/detect/watch/probe.h"

namespace stackd {

inline SystemCall FutexCall(uint64_t avma, uint64_t operation = FUTEX_WAIT_PRIVATE, uint64_t timeout = 0) {
  SystemCall call{.number = SYS_futex, .known_arguments = 0b1011};
  call.arguments = {avma, operation, 0, timeout, 0, 0};
  return call;
}

inline SystemCall CallOf(uint32_t number) { return {.number = number}; }

inline SystemCall ReadCall(int32_t fd) {
  SystemCall call{.number = SYS_read, .known_arguments = 1};
  call.arguments[0] = static_cast<uint64_t>(fd);
  return call;
}

struct FakeThread {
  ThreadSchedStat sched_stat;
  std::optional<SystemCall> call;  // nullopt: it runs, and a sample does not see it

  void Run() {
    ++sched_stat.run_count;
    sched_stat.run_ns += 50'000;
  }
};

struct FakeProcess {
  ProcessDescription description;
  std::map<int32_t, FakeThread> threads;
  std::map<uint64_t, FutexWord> futexes;
  std::map<int32_t, WaitedFd> fds;
  std::vector<Heartbeat> heartbeats;
  SigtermSigns sigterm = {.taken_count = 0};
  char state = 'S';
  bool is_frozen = false;
  int32_t helper_tid = 0;
  std::vector<std::string> functions;
  int64_t sample_cost_ns = 0;  // that the helper runs for
  int samples = 0;
  int samples_asked = 0;
  std::optional<Status> sample_error;
  int functions_asked = 0;
  std::vector<ManagedWait> lock_waits;
  std::optional<CycleInStacks> cycle;
  int cycles_asked = 0;
  Goroutines goroutines;
  int goroutines_asked = 0;

  void AddThread(int32_t tid, std::optional<SystemCall> call) {
    threads[tid] = {{.tid = tid, .run_ns = 1000, .run_count = 1}, std::move(call)};
  }
  // `waiter` waits for the mutex, which `owner` has.
  void AddMutexWait(int32_t waiter, uint64_t avma, int32_t owner, int32_t kind = 0) {
    AddThread(waiter, FutexCall(avma));
    futexes[avma] = {.avma = avma,
                     .value = 2,
                     .mutex = PthreadMutex{.owner_tid = owner, .users = 1, .kind = kind},
                     .is_shared = (kind & 128) != 0};
  }
  // Does the same for a thread that is there.
  void MoveToMutex(int32_t waiter, uint64_t avma, int32_t owner) {
    ThreadSchedStat sched_stat = threads[waiter].sched_stat;
    AddMutexWait(waiter, avma, owner);
    threads[waiter].sched_stat = sched_stat;
    threads[waiter].Run();
  }
  // `owner` waits for an answer from elsewhere.
  void AddReader(int32_t owner, int32_t fd = 5) {
    AddThread(owner, ReadCall(fd));
    fds[fd] = {.fd = fd, .name = "tcp 10.0.0.1:4711 -> 10.0.0.2:5432"};
  }
  // Runs each thread, as a dump does.
  void AnswerCapture() {
    for (auto& [tid, thread] : threads) thread.Run();
  }
};

class FakeProbe final : public ProcessProbe {
 public:
  FakeProcess& Add(const std::string& id, const std::string& name = "victim") {
    FakeProcess& process = processes[id];
    process.description.id = id;
    process.description.display_name = name;
    process.description.executable = "/usr/bin/" + name;
    return process;
  }

  std::vector<ProcessDescription> Processes() override {
    std::vector<ProcessDescription> result;
    for (const auto& [id, process] : processes) result.push_back(process.description);
    return result;
  }
  Result<std::vector<ThreadSchedStat>> ReadSchedStats(const std::string& id) override {
    on_read_sched_stats();
    std::vector<ThreadSchedStat> result;
    for (const auto& [tid, thread] : processes.at(id).threads) result.push_back(thread.sched_stat);
    return result;
  }
  Result<std::vector<ThreadWait>> SampleWaits(const std::string& id, int64_t) override {
    FakeProcess& process = processes.at(id);
    ++process.samples_asked;
    on_sample(id);
    if (process.sample_error) return std::unexpected(*process.sample_error);
    if (process.is_frozen || process.state == 'T') return Error(Code::kDeadlineExceeded, "no answer");
    ++process.samples;
    std::vector<ThreadWait> result;
    for (const auto& [tid, thread] : process.threads) {
      if (thread.call && tid != process.helper_tid) result.push_back({tid, 0x1000, 0x2000, thread.call});
    }
    const auto helper = process.threads.find(process.helper_tid);
    if (helper != process.threads.end()) {
      helper->second.Run();
      helper->second.sched_stat.run_ns += process.sample_cost_ns;
    }
    return result;
  }
  Result<std::vector<FutexWord>> ReadFutexes(const std::string& id, std::span<const FutexWait> waits) override {
    std::set<uint64_t> avmas;
    for (const FutexWait& wait : waits) avmas.insert(wait.avma);
    std::vector<FutexWord> result;
    for (uint64_t avma : avmas) {
      const auto futex = processes.at(id).futexes.find(avma);
      if (futex != processes.at(id).futexes.end()) result.push_back(futex->second);
    }
    return result;
  }
  Result<std::vector<WaitedFd>> DescribeFds(const std::string& id, std::span<const int32_t> fds, int64_t) override {
    std::vector<WaitedFd> result;
    for (int32_t fd : fds) {
      const auto known = processes.at(id).fds.find(fd);
      result.push_back(known == processes.at(id).fds.end() ? WaitedFd{.fd = fd} : known->second);
    }
    return result;
  }
  Result<std::vector<Heartbeat>> Heartbeats(const std::string& id) override { return processes.at(id).heartbeats; }
  Result<SigtermSigns> ReadSigtermSigns(const std::string& id) override { return processes.at(id).sigterm; }
  std::vector<int64_t> ReadProcessSchedStats(const std::string& id) override {
    int64_t run_ns = 0, run_count = 0;
    const auto sched_stats = ReadSchedStats(id);
    for (const ThreadSchedStat& sched_stat : *sched_stats) {
      run_ns += sched_stat.run_ns;
      run_count += static_cast<int64_t>(sched_stat.run_count);
    }
    return {run_ns, run_count};
  }
  char StateOf(const std::string& id, int32_t) override { return processes.at(id).state; }
  Result<std::vector<std::string>> FunctionsOf(const std::string& id, int32_t) override {
    ++processes.at(id).functions_asked;
    return processes.at(id).functions;
  }

  Result<std::vector<ManagedWait>> ReadLockWaits(const std::string& id, std::span<const ThreadWait> sleeping) override {
    std::vector<ManagedWait> result;
    for (const ManagedWait& wait : processes.at(id).lock_waits) {
      if (std::ranges::find(sleeping, wait.waiter_tid, &ThreadWait::tid) != sleeping.end()) result.push_back(wait);
    }
    return result;
  }
  Result<Goroutines> ReadStuckGoroutines(const std::string& id) override {
    ++processes.at(id).goroutines_asked;
    return processes.at(id).goroutines;
  }
  Result<std::optional<CycleInStacks>> FindCycle(const std::string& id) override {
    ++processes.at(id).cycles_asked;
    return processes.at(id).cycle;
  }

  std::map<std::string, FakeProcess> processes;
  std::function<void()> on_read_sched_stats = [] {};
  std::function<void(const std::string& id)> on_sample = [](const std::string&) {};
};

}  // namespace stackd
