#include "daemon/collect/thread_sampler.h"

#include <string.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/process/schedstat_reader.h"

namespace stackd {
namespace {

// A thread costs the helper 5 us; then it may wait for a CPU.
constexpr int64_t kAskSchedStatsNs = 300 * kNsPerMs;

std::unexpected<Status> Unavailable(const char* why) { return Error(Code::kUnavailable, why); }

}  // namespace

Result<std::vector<ThreadSchedStat>> ThreadSampler::ReadSchedStats(bool gives_way) {
  const ProcessFiles& files = process_->files();
  if (files.has_folder()) {
    auto sched_stats = ListSchedStats(files);
    if (sched_stats) process_->SetThreadCount(sched_stats->size());
    return sched_stats;
  }
  const int32_t thread_count = files.ThreadCount();
  if (thread_count == 0) return Unavailable("its threads cannot be listed: it has ended, or passed no file");
  process_->SetThreadCount(static_cast<size_t>(thread_count));
  if (thread_count > 1) return AskSchedStats(gives_way);
  const auto sched_stat = process_->FirstSchedStat();
  if (!sched_stat || sched_stat->run_count == 0) return Unavailable("the kernel does not tell how long threads run");
  return std::vector{*sched_stat};
}

Result<std::vector<ThreadSchedStat>> ThreadSampler::AskSchedStats(bool gives_way) {
  if (!process_->TakesCommands()) return Unavailable("no thread of the agent is there to look at its threads");
  const int64_t deadline_ns = MonotonicNs() + kAskSchedStatsNs;
  const auto turn = turns_->Take(deadline_ns);
  if (!turn.owns_lock()) return Error(Code::kAborted, "a dump of processes/" + process_->id() + " was running");
  if (process_->IsStopped()) return Unavailable("it is stopped");
  SchedStatLook look(ring_->next_seq());
  const auto failure = Run(STACKD_COMMAND_SCHEDSTAT, deadline_ns, gives_way, {.schedstat_look = &look});
  if (!failure) return std::unexpected(failure.error());
  std::vector<ThreadSchedStat> sched_stats = look.Take();
  // Every thread has run once, or it could not be here.
  const bool told =
      std::ranges::any_of(sched_stats, [](const ThreadSchedStat& sched_stat) { return sched_stat.run_count != 0; });
  if (*failure != 0 || !told) return Unavailable("the kernel does not tell how long threads run");
  std::set<int32_t> tids;
  for (const ThreadSchedStat& sched_stat : sched_stats) tids.insert(sched_stat.tid);
  if (look.helper_tid() != 0) tids.insert(look.helper_tid());
  process_->RememberThreads(tids);
  return sched_stats;
}

Result<std::vector<ThreadWait>> ThreadSampler::SampleWaits(int64_t deadline_ns, bool gives_way) {
  if (process_->is_goroutine() || !process_->waker().is_awake()) return std::vector<ThreadWait>{};
  const std::string name = "processes/" + process_->id();
  if (process_->waker().is_filtered()) {
    return Error(Code::kFailedPrecondition,
                 "the threads of " + name + " cannot be looked at: " + std::string(kFilteredLimit));
  }
  deadline_ns = std::min(deadline_ns, MonotonicNs() + kMaxCaptureNs);
  const auto turn = turns_->Take(deadline_ns);
  if (!turn.owns_lock()) {
    return Error(Code::kDeadlineExceeded, "a dump of " + name + " was running until the deadline");
  }
  if (process_->IsStopped()) return Error(Code::kUnavailable, name + " is stopped: it cannot look at its threads");
  WaitSample sample(ring_->next_seq());
  const auto failure = Run(STACKD_COMMAND_SAMPLE, deadline_ns, gives_way, {.sample = &sample});
  if (!failure) return std::unexpected(failure.error());
  // Its one thread has waited for long, and is not woken for that: then there is none.
  if (process_->waker().is_awake()) process_->SetSampleLimit(*failure == 0 ? "" : strerror(*failure));
  if (*failure == 0) return sample.Take();
  return Error(Code::kFailedPrecondition,
               "what the threads of " + name + " sleep in cannot be read: " + strerror(*failure));
}

Result<int> ThreadSampler::Run(uint32_t command, int64_t deadline_ns, bool gives_way, AgentRing::Sinks sinks) {
  ring_->Begin(command, {.deadline_ns = deadline_ns}, sinks);
  const Result<int> failure = Await(deadline_ns, gives_way);
  ring_->End();
  return failure;
}

Result<int> ThreadSampler::Await(int64_t deadline_ns, bool gives_way) {
  const std::string name = "processes/" + process_->id();
  for (;;) {
    const AgentRing::Progress progress = ring_->Poll();
    if (progress.is_done) return progress.failure;
    if (!progress.is_connected) return Error(Code::kNotFound, name + " has ended", "PROCESS_EXITED");
    if (!process_->waker().is_awake()) return 0;
    if (gives_way && (turns_->is_wanted() || crash_->has_crashed())) {
      return Error(Code::kAborted, "a dump of " + name + " went first");
    }
    if (MonotonicNs() >= deadline_ns) {
      return Error(Code::kDeadlineExceeded, name + " did not look at its threads by the deadline");
    }
    ring_->Wait(progress.doorbell);
  }
}

}  // namespace stackd
