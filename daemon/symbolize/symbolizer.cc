#include "daemon/symbolize/symbolizer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/symbolize/symbol_cache.h"
#include "daemon/symbolize/worker_process.h"

namespace stackd {
namespace {

// A worker that says nothing for so long is stuck: decompressing 1 GiB of debug data takes 6 s.
constexpr int64_t kSilenceLimitNs = 20 * kNsPerSecond;
// Addresses in one request to a worker. Small, so that modules take turns.
constexpr size_t kBatch = 64;
// More addresses than this wait for nobody: a hostile process makes up as many as it likes.
constexpr size_t kMaxWaiting = 500'000;

std::chrono::steady_clock::time_point TimePoint(int64_t monotonic_ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(monotonic_ns));
}

std::shared_ptr<const SourceLocation> Unnamed(std::string reason) {
  auto location = std::make_shared<SourceLocation>();
  location->unnamed_reason = std::move(reason);
  return location;
}

std::shared_ptr<const SourceLocation> WithReason(const std::shared_ptr<const SourceLocation>& names, std::string reason) {
  if (names == nullptr) return Unnamed(std::move(reason));
  auto location = std::make_shared<SourceLocation>(*names);
  location->unnamed_reason = std::move(reason);
  return location;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

// Two lanes, each a thread with a worker process of its own: one answers from symbol tables, in milliseconds, and never
// waits for the other, which reads debug data. Every address goes through both; the second answer is final.
struct Symbolizer::State {
  struct Lane {
    Lane(Phase phase, WorkerOptions options) : phase(phase), worker(std::move(options)) {}
    const Phase phase;
    WorkerProcess worker;
    std::deque<SymbolModule*> queue;  // those with waiting addresses; they take turns
    std::thread thread;
  };

  explicit State(const SymbolizerOptions& options)
      : cache(options.cache_limit_bytes),
        memory_limit_bytes(options.worker_memory_limit_bytes),
        idle_limit(options.worker_idle_limit_ns),
        names(Phase::kNames, {options.worker_memory_limit_bytes / 4, options.debug_dirs, kSilenceLimitNs}),
        lines(Phase::kLines, {options.worker_memory_limit_bytes / 4 * 3, options.debug_dirs, kSilenceLimitNs}) {
    names.thread = std::thread([this] { Run(names); });
    lines.thread = std::thread([this] { Run(lines); });
  }

  ~State() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    work_added.notify_all();
    names.worker.Cancel();
    lines.worker.Cancel();
    names.thread.join();
    lines.thread.join();
  }

  // All below: with `mutex` held.

  static bool Spared(const SymbolModule& entry, Phase phase) {
    return entry.names_blame >= kMaxBlame || (phase == Phase::kLines && entry.lines_blame >= kMaxBlame);
  }

  void Enqueue(Lane& lane, SymbolModule& entry, uint64_t svma) {
    std::deque<uint64_t>& svmas = entry.waiting[static_cast<size_t>(lane.phase)];
    if (svmas.empty()) lane.queue.push_back(&entry);
    svmas.push_back(svma);
    waiting++;
  }

  // Has the slot looked up, unless it is already being. Without lines, the name alone makes it final.
  void Request(const AddressQuery& query, SymbolModule& entry, SymbolSlot& slot, bool with_lines) {
    if (slot.names_pending || slot.lines_pending) return;
    if (waiting >= kMaxWaiting) return;
    if (Spared(entry, Phase::kNames)) {
      cache.Set(slot, Unnamed(entry.names_failure), true);
      return;
    }
    entry.file = query.module;
    if (slot.location == nullptr) {
      slot.names_pending = true;
      Enqueue(names, entry, query.svma);
    }
    if (!with_lines) return;
    slot.lines_pending = true;
    Enqueue(lines, entry, query.svma);
  }

  // The answer of a lane for a slot.
  void Answer(Lane& lane, SymbolModule& entry, uint64_t svma, SymbolQuality quality, SourceLocation location) {
    SymbolSlot& slot = cache.GetSlot(entry, svma);
    entry.quality = std::max(entry.quality, quality);
    if (lane.phase == Phase::kLines) {
      slot.lines_pending = false;
      slot.retry_ns = 0;
      cache.Set(slot, std::make_shared<SourceLocation>(std::move(location)), true);
    } else {
      slot.names_pending = false;
      if (slot.is_final) return;
      cache.Set(slot, std::make_shared<SourceLocation>(std::move(location)), false);
      FinishIfSpared(entry, slot);
    }
  }

  // Lines will not come any more: the names are all there is.
  void FinishIfSpared(SymbolModule& entry, SymbolSlot& slot) {
    if (slot.is_final || slot.names_pending || slot.lines_pending) return;
    const std::string& reason = Spared(entry, Phase::kNames) ? entry.names_failure : entry.lines_failure;
    cache.Set(slot, WithReason(slot.location, reason), true);
  }

  static std::string& FailureOf(const Lane& lane, SymbolModule& entry) {
    return lane.phase == Phase::kNames ? entry.names_failure : entry.lines_failure;
  }

  // The lane will not answer for the slot. `retry_ns`: as in SymbolSlot.
  void GiveUp(const Lane& lane, SymbolModule& entry, uint64_t svma, int64_t retry_ns) {
    SymbolSlot& slot = cache.GetSlot(entry, svma);
    (lane.phase == Phase::kNames ? slot.names_pending : slot.lines_pending) = false;
    slot.retry_ns = retry_ns;
    FinishIfSpared(entry, slot);
  }

  std::string Describe(WorkerEnd end, Phase phase, const SymbolModule& entry) const {
    const std::string what =
        phase == Phase::kNames ? "no names: reading the symbols of " : "no lines: reading the debug data of ";
    const std::string subject = what + BaseName(entry.path);
    switch (end) {
      case WorkerEnd::kOutOfMemory: {
        uint64_t limit_bytes = phase == Phase::kNames ? memory_limit_bytes / 4 : memory_limit_bytes / 4 * 3;
        return subject + " needed more than " + std::to_string(limit_bytes >> 20) + " MiB";
      }
      case WorkerEnd::kTimedOut:
        return subject + " took longer than " + std::to_string(kSilenceLimitNs / kNsPerSecond) + " s";
      case WorkerEnd::kNotStarted:
        return subject + " is not possible: the symbol worker could not be started";
      case WorkerEnd::kUnconfined:
        return subject + " is not possible: the kernel did not let the symbol worker give up its rights";
      case WorkerEnd::kKilled:
        return subject + " failed: the symbol worker was killed again and again";
      default:
        return subject + " crashed the symbol worker";
    }
  }

  // The worker did not answer these.
  void HandleFailure(Lane& lane, SymbolModule& entry, WorkerEnd end, const std::vector<uint64_t>& unanswered) {
    FailureOf(lane, entry) = Describe(end, lane.phase, entry);
    if (end == WorkerEnd::kNotStarted || end == WorkerEnd::kUnconfined) {
      for (uint64_t svma : unanswered) GiveUp(lane, entry, svma, MonotonicNs() + kNsPerSecond);
      return;
    }
    (lane.phase == Phase::kNames ? entry.names_blame : entry.lines_blame) +=
        end == WorkerEnd::kKilled ? kBlameForKill : kBlameForCrash;
    for (uint64_t svma : unanswered) Enqueue(lane, entry, svma);
  }

  static Loop LoopOf(const Lane& lane) { return lane.phase == Phase::kNames ? Loop::kSymbolNames : Loop::kSymbolLines; }

  // Ends a worker that idles meanwhile. The lane's own thread does it, so no request ever meets a worker that is ending;
  // and it waits once, so an idle daemon does not wake up.
  void AwaitWork(Lane& lane, std::unique_lock<std::mutex>& lock) {
    auto has_work = [&] { return stopping || !lane.queue.empty(); };
    if (lane.worker.is_running() && !work_added.wait_for(lock, idle_limit, has_work)) {
      lock.unlock();
      const LoopWatch::Turn turn(LoopOf(lane));
      lane.worker.EndIdle();
      lock.lock();
    }
    work_added.wait(lock, has_work);
  }

  void Run(Lane& lane) {
    std::unique_lock lock(mutex);
    while (true) {
      AwaitWork(lane, lock);
      if (stopping) return;
      SymbolModule& entry = *lane.queue.front();
      lane.queue.pop_front();
      entry.users++;
      std::deque<uint64_t>& svmas = entry.waiting[static_cast<size_t>(lane.phase)];
      size_t batch_size = std::min(svmas.size(), kBatch);
      std::vector<uint64_t> batch(svmas.begin(), svmas.begin() + batch_size);
      svmas.erase(svmas.begin(), svmas.begin() + batch_size);
      if (!svmas.empty()) lane.queue.push_back(&entry);
      waiting -= batch_size;
      if (Spared(entry, lane.phase)) {
        for (uint64_t svma : batch) GiveUp(lane, entry, svma, 0);
      } else {
        Serve(lane, entry, batch, lock);
      }
      entry.users--;
      // The other lane may have to ask again.
      if (entry.users == 0 && entry.waiting[0].empty() && entry.waiting[1].empty()) entry.file = nullptr;
      cache.EnforceLimit();
      answered.notify_all();
    }
  }

  // Asks the worker, without the lock.
  void Serve(Lane& lane, SymbolModule& entry, const std::vector<uint64_t>& batch, std::unique_lock<std::mutex>& lock) {
    std::shared_ptr<const Module> file = entry.file;
    WorkerRequest request{entry.id, file->fd(), file->path(), lane.phase, batch};
    std::vector<bool> done(batch.size());
    lock.unlock();
    LoopWatch::Turn turn(LoopOf(lane));
    WorkerEnd end = lane.worker.Ask(request, [&](uint32_t index, SymbolQuality quality, SourceLocation location) {
      turn.Beat();
      done[index] = true;
      std::lock_guard inner(mutex);
      Answer(lane, entry, batch[index], quality, std::move(location));
    });
    lock.lock();
    if (end == WorkerEnd::kAnswered || end == WorkerEnd::kCancelled) return;
    std::vector<uint64_t> unanswered;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!done[i]) unanswered.push_back(batch[i]);
    }
    if (!unanswered.empty()) HandleFailure(lane, entry, end, unanswered);
  }

  // Takes the lock itself.
  std::vector<std::shared_ptr<const SourceLocation>> LookUp(std::span<const AddressQuery> queries, int64_t deadline_ns,
                                                            bool with_lines);

  std::mutex mutex;
  std::condition_variable work_added;
  std::condition_variable answered;
  bool stopping = false;
  size_t waiting = 0;
  SymbolCache cache;
  std::atomic<int64_t> cache_hits{0}, cache_misses{0};
  const uint64_t memory_limit_bytes;
  const std::chrono::nanoseconds idle_limit;
  Lane names;
  Lane lines;
};

std::vector<std::shared_ptr<const SourceLocation>> Symbolizer::State::LookUp(std::span<const AddressQuery> queries,
                                                                             int64_t deadline_ns, bool with_lines) {
  struct Missing {
    size_t index;
    SymbolSlot* slot;  // kept by its waiters count
  };
  std::vector<std::shared_ptr<const SourceLocation>> locations(queries.size());
  std::vector<Missing> missing;

  std::unique_lock lock(mutex);
  const Module* last_module = nullptr;
  SymbolModule* entry = nullptr;
  for (size_t i = 0; i < queries.size(); ++i) {
    if (queries[i].module.get() != last_module) {
      last_module = queries[i].module.get();
      entry = &cache.GetModule(*last_module);
    }
    SymbolSlot& slot = cache.GetSlot(*entry, queries[i].svma);
    if (slot.is_final && slot.retry_ns != 0 && MonotonicNs() >= slot.retry_ns) {
      slot.retry_ns = 0;
      cache.Set(slot, nullptr, false);
    }
    ++(slot.is_final ? cache_hits : cache_misses);
    if (!slot.is_final) Request(queries[i], *entry, slot, with_lines);
    if (slot.is_final) {
      locations[i] = slot.location;
    } else if (!slot.names_pending && !slot.lines_pending) {
      locations[i] = Unnamed("not named: too many addresses wait for the symbol worker");
    } else {
      slot.waiters++;
      missing.push_back({i, &slot});
    }
  }
  if (missing.empty()) {
    cache.EnforceLimit();
    return locations;
  }

  work_added.notify_all();
  size_t first_open = 0;
  answered.wait_until(lock, TimePoint(deadline_ns), [&] {
    while (first_open < missing.size() && missing[first_open].slot->is_final) ++first_open;
    return first_open == missing.size();
  });
  for (const Missing& open : missing) {
    SymbolSlot& slot = *open.slot;
    slot.waiters--;
    if (slot.is_final) {
      locations[open.index] = slot.location;
    } else if (slot.location != nullptr) {
      locations[open.index] = WithReason(slot.location, "no lines: the debug data was not read within the deadline");
    } else {
      locations[open.index] = Unnamed("not named within the deadline");
    }
  }
  cache.EnforceLimit();
  return locations;
}

Symbolizer::Symbolizer(SymbolizerOptions options) : state_(std::make_unique<State>(options)) {}

Symbolizer::~Symbolizer() = default;

std::vector<std::shared_ptr<const SourceLocation>> Symbolizer::Symbolize(std::span<const AddressQuery> queries,
                                                                         int64_t deadline_ns) {
  return state_->LookUp(queries, deadline_ns, /*with_lines=*/true);
}

std::vector<std::string> Symbolizer::NameVariables(std::span<const AddressQuery> queries, int64_t deadline_ns) {
  std::vector<std::string> names;
  for (const auto& location : state_->LookUp(queries, deadline_ns, /*with_lines=*/false)) {
    names.push_back(location->frames.empty() ? "" : location->frames.back().function);
  }
  return names;
}

void Symbolizer::Forget(const Module& module) {
  std::lock_guard lock(state_->mutex);
  state_->cache.Forget(module);
}

SymbolQuality Symbolizer::Quality(const Module& module) const {
  std::lock_guard lock(state_->mutex);
  const SymbolModule* entry = state_->cache.FindModule(module);
  return entry != nullptr ? entry->quality : SymbolQuality::kNone;
}

int64_t Symbolizer::cache_hits() const { return state_->cache_hits; }
int64_t Symbolizer::cache_misses() const { return state_->cache_misses; }

int64_t Symbolizer::worker_restarts() const { return state_->names.worker.deaths() + state_->lines.worker.deaths(); }

}  // namespace stackd
