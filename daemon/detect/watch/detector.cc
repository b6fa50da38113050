#include "daemon/detect/watch/detector.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "daemon/base/loop_watch.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

// A process that has come is seen so soon.
constexpr int64_t kRefreshNs = 500 * kNsPerMs;
// One look's time for threads: heartbeats of other processes must not wait for longer.
constexpr int64_t kThreadsShareNs = 50 * kNsPerMs;
// Questions about heartbeats that did not come begin within this time.
constexpr int64_t kJudgeShareNs = 200 * kNsPerMs;
// Over so long a time the looks may take this part of a core, 1 %; beyond that they come less often.
constexpr int64_t kWindowNs = 10 * kNsPerSecond;
constexpr int64_t kWindowShareNs = kWindowNs / 100;
constexpr int64_t kMaxStretch = 16;
constexpr int64_t kMinRestNs = 10 * kNsPerMs;

bool SomeBeganWhileOthersSlept(const std::map<int32_t, ThreadWatch::Past>& pasts) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t asleep_since_ns = kNever;
  std::optional<int64_t> last_absent_ns;
  for (const auto& [tid, seen] : pasts) {
    asleep_since_ns = std::min(asleep_since_ns, seen.past.unmoved_since_ns.value_or(kNever));
    last_absent_ns = std::max(last_absent_ns, seen.past.absent_at_ns);
  }
  return last_absent_ns && *last_absent_ns >= asleep_since_ns;
}

}  // namespace

Detector::Detector(ProcessProbe* probe, DetectorOptions options) : probe_(probe), options_(std::move(options)) {}

Detector::~Detector() { Stop(); }

void Detector::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    stopped_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Detector::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Detector::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const int64_t next_ns = Look(MonotonicNs());
    lock.lock();
    const auto rest = std::chrono::nanoseconds(std::max(next_ns - MonotonicNs(), kMinRestNs));
    stopped_.wait_for(lock, rest, [this] { return stopping_; });
  }
}

int64_t Detector::Look(int64_t now_ns) {
  const LoopWatch::Turn turn(Loop::kDetector);
  const int64_t begin_cpu_ns = options_.cpu_clock();
  if (refreshed_ns_ == 0 || now_ns - refreshed_ns_ >= kRefreshNs) Refresh(now_ns);
  LookAtHeartbeats(now_ns);
  LookAtThreads(now_ns);
  Account(now_ns, options_.cpu_clock() - begin_cpu_ns);

  int64_t next_ns = refreshed_ns_ + kRefreshNs;
  for (const auto& [id, watch] : watches_) {
    next_ns = std::min({next_ns, watch->heartbeats().due_ns(), watch->threads_due_ns(), watch->shutdown().due_ns()});
  }
  return next_ns;
}

void Detector::Refresh(int64_t now_ns) {
  refreshed_ns_ = now_ns;
  std::map<std::string, std::unique_ptr<ProcessWatch>> before = std::exchange(watches_, {});
  for (ProcessDescription& process : probe_->Processes()) {
    std::unique_ptr<ProcessWatch>& watch = watches_[process.id];
    auto known = before.extract(process.id);
    if (!known.empty()) {
      watch = std::move(known.mapped());
    } else {
      watch = std::make_unique<ProcessWatch>(probe_, &options_.rules, &counters_, options_.on_suspicion);
    }
    watch->SetDescription(std::move(process));
  }
  for (auto& [id, watch] : before) {
    watch.reset();
    options_.on_gone(id);
    std::lock_guard lock(mutex_);
    pasts_.erase(id);
  }
}

// Asks processes that answer before those that do not, and in turn. A process that does not answer must not take the time
// of the others.
void Detector::LookAtHeartbeats(int64_t now_ns) {
  const int64_t begin_ns = options_.clock();
  const auto first = watches_.upper_bound(last_asked_);
  for (bool answers : {true, false}) {
    auto next = first;
    for (size_t i = 0; i < watches_.size(); ++i, ++next) {
      if (next == watches_.end()) next = watches_.begin();
      if (next->second->heartbeats().due_ns() > now_ns || next->second->answers() != answers) continue;
      next->second->heartbeats().Look(now_ns, [&] {
        if (options_.clock() - begin_ns >= kJudgeShareNs) return false;
        last_asked_ = next->first;
        return true;
      });
    }
  }
}

// Goes round, so that no process waits for ever where the time is short.
void Detector::LookAtThreads(int64_t now_ns) {
  std::map<std::string, int> captured;
  {
    std::lock_guard lock(mutex_);
    captured.swap(captured_);
  }
  for (const auto& [id, told] : captured) {
    const auto watch = watches_.find(id);
    // The detector is told of each capture twice, before and after.
    if (watch != watches_.end()) watch->second->Disturb((told + 1) / 2);
  }
  const int64_t begin_ns = options_.clock();
  auto next = watches_.upper_bound(last_looked_);
  for (size_t i = 0; i < watches_.size() && options_.clock() - begin_ns < kThreadsShareNs; ++i, ++next) {
    if (next == watches_.end()) next = watches_.begin();
    auto& [id, watch] = *next;
    if (watch->shutdown().due_ns() <= now_ns) watch->shutdown().Look(now_ns, stretch_);
    if (watch->threads_due_ns() > now_ns) continue;
    watch->LookAtThreads(now_ns, options_.cpu_clock, stretch_);
    last_looked_ = id;
    std::map<int32_t, ThreadWatch::Past> pasts = watch->Pasts();
    std::lock_guard lock(mutex_);
    pasts_[id] = std::move(pasts);
  }
}

void Detector::Account(int64_t now_ns, int64_t used_cpu_ns) {
  cpu_ns_ += used_cpu_ns;
  window_cpu_ns_ += used_cpu_ns;
  if (now_ns - window_begin_ns_ < kWindowNs) return;
  // What it would be without stretching.
  const int64_t unstretched_ns = window_cpu_ns_ * stretch_;
  const int64_t stretch = std::clamp<int64_t>((unstretched_ns + kWindowShareNs - 1) / kWindowShareNs, 1, kMaxStretch);
  if (stretch > stretch_) {
    Log(LogLevel::kInfo, "looks for hangs come less often", {{"factor", stretch}, {"processes", watches_.size()}});
  }
  stretch_ = stretch;
  window_begin_ns_ = now_ns;
  window_cpu_ns_ = 0;
}

std::map<int32_t, ThreadPast> Detector::BeforeCapture(const std::string& process_id) {
  std::unique_lock lock(mutex_);
  ++captured_[process_id];
  const auto found = pasts_.find(process_id);
  if (found == pasts_.end()) return {};
  std::map<int32_t, ThreadWatch::Past> pasts = found->second;
  lock.unlock();
  if (SomeBeganWhileOthersSlept(pasts)) LookAgain(process_id, &pasts);
  std::map<int32_t, ThreadPast> told;
  for (const auto& [tid, seen] : pasts) told.emplace(tid, seen.past);
  return told;
}

// A thread may have run since the last look, and may be behind the younger one now.
void Detector::LookAgain(const std::string& process_id, std::map<int32_t, ThreadWatch::Past>* pasts) const {
  std::map<int32_t, ThreadSchedStat> now;
  const auto sched_stats = probe_->ReadSchedStats(process_id);
  if (sched_stats) {
    for (const ThreadSchedStat& sched_stat : *sched_stats) now.emplace(sched_stat.tid, sched_stat);
  }
  for (auto& [tid, seen] : *pasts) {
    const auto found = now.find(tid);
    if (found == now.end()) seen.past.absent_at_ns.reset();
    const bool has_run = found == now.end() || found->second.run_count != seen.sched_stat.run_count ||
                         found->second.run_ns != seen.sched_stat.run_ns;
    if (has_run) seen.past.unmoved_since_ns.reset();
  }
}

void Detector::AfterCapture(const std::string& process_id) {
  std::lock_guard lock(mutex_);
  ++captured_[process_id];
}

std::optional<int32_t> Detector::MovingThreads(const std::string& process_id) const {
  std::lock_guard lock(mutex_);
  const auto found = pasts_.find(process_id);
  if (found == pasts_.end() || found->second.empty()) return std::nullopt;
  return static_cast<int32_t>(
      std::ranges::count_if(found->second, [](const auto& seen) { return !seen.second.past.unmoved_since_ns; }));
}

std::map<std::string, int64_t> Detector::Counters() const {
  return {{"hang_looks", counters_.schedstat_looks},
          {"hang_looks_cpu_us", cpu_ns_ / 1000},
          {"hang_samples", counters_.samples},
          {"hang_samples_failed", counters_.samples_failed},
          {"hang_sigterm_looks", counters_.sigterm_looks},
          {"hangs_heartbeat", counters_.heartbeats_missed},
          {"hangs_deadlock", counters_.deadlocks},
          {"hangs_spin", counters_.spins},
          {"hangs_no_progress", counters_.stalls},
          {"hangs_not_gone", counters_.shutdown_timeouts},
          {"hangs_stopped", counters_.stopped},
          {"heartbeat_last_s", counters_.last_beat_wall_ns / kNsPerSecond}};
}

}  // namespace stackd
