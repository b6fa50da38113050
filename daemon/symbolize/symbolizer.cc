#include "daemon/symbolize/symbolizer.h"

#include <algorithm>
#include <array>
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
// A module that takes longer is not what others wait for: the second worker for debug data serves them.
constexpr int64_t kPatienceNs = 100 * kNsPerMs;
// Addresses in one request to a worker. Small, so that modules take turns.
constexpr size_t kBatch = 64;
// No more addresses may wait: a hostile process makes up as many as it likes.
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

// Two lanes with worker processes of their own: one answers from symbol tables, in milliseconds, and never waits for the
// other, which reads debug data. Every address goes through both; the second answer is final.
struct Symbolizer::State {
  // A thread and its worker process.
  struct Server {
    explicit Server(WorkerOptions options) : memory_limit_bytes(options.memory_limit_bytes), worker(std::move(options)) {}
    const uint64_t memory_limit_bytes;
    WorkerProcess worker;
    int64_t busy_since_ns = 0;  // with one request; 0: it has none
    std::thread thread;
  };

  struct Lane {
    Lane(Phase phase, WorkerOptions options) : phase(phase), first(std::move(options)) {}
    const Phase phase;
    Server first;
    std::deque<SymbolModule*> queue;  // those with waiting addresses; they take turns
  };

  explicit State(const SymbolizerOptions& options)
      : cache(options.cache_limit_bytes),
        idle_limit_ns(options.worker_idle_limit_ns),
        names(Phase::kNames, {options.worker_memory_limit_bytes / 4, options.debug_dirs, kSilenceLimitNs}),
        lines(Phase::kLines, {options.worker_memory_limit_bytes / 8 * 5, options.debug_dirs, kSilenceLimitNs}),
        second_for_lines({options.worker_memory_limit_bytes / 8, options.debug_dirs, kSilenceLimitNs}) {
    names.first.thread = std::thread([this] { Run(names, names.first); });
    lines.first.thread = std::thread([this] { Run(lines, lines.first); });
    second_for_lines.thread = std::thread([this] { Run(lines, second_for_lines); });
  }

  ~State() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    work_added.notify_all();
    for (Server* server : Servers()) server->worker.Cancel();
    for (Server* server : Servers()) server->thread.join();
  }

  std::array<Server*, 3> Servers() { return {&names.first, &lines.first, &second_for_lines}; }

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

  static std::string Describe(WorkerEnd end, const Lane& lane, const SymbolModule& entry) {
    const std::string what =
        lane.phase == Phase::kNames ? "no names: reading the symbols of " : "no lines: reading the debug data of ";
    const std::string subject = what + BaseName(entry.path);
    switch (end) {
      case WorkerEnd::kOutOfMemory:
        return subject + " needed more than " + std::to_string(lane.first.memory_limit_bytes >> 20) + " MiB";
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
  void HandleFailure(Lane& lane, const Server& server, SymbolModule& entry, WorkerEnd end,
                     const std::vector<uint64_t>& unanswered) {
    if (end == WorkerEnd::kOutOfMemory && &server == &second_for_lines) {
      entry.is_large = true;
      for (uint64_t svma : unanswered) Enqueue(lane, entry, svma);
      return;
    }
    FailureOf(lane, entry) = Describe(end, lane, entry);
    if (end == WorkerEnd::kNotStarted || end == WorkerEnd::kUnconfined) {
      for (uint64_t svma : unanswered) GiveUp(lane, entry, svma, MonotonicNs() + kNsPerSecond);
      return;
    }
    (lane.phase == Phase::kNames ? entry.names_blame : entry.lines_blame) +=
        end == WorkerEnd::kKilled ? kBlameForKill : kBlameForCrash;
    for (uint64_t svma : unanswered) Enqueue(lane, entry, svma);
  }

  static Loop LoopOf(const Lane& lane) { return lane.phase == Phase::kNames ? Loop::kSymbolNames : Loop::kSymbolLines; }

  // Takes the next module for this worker off the queue; nullptr: there is none.
  SymbolModule* Take(Lane& lane, const Server& server) {
    const bool is_second = &server == &second_for_lines;
    if (is_second && MonotonicNs() < LateNs(lane)) return nullptr;
    const auto next = std::ranges::find_if(lane.queue, [&](const SymbolModule* entry) {
      return !entry->is_served[static_cast<size_t>(lane.phase)] && !(is_second && entry->is_large);
    });
    if (next == lane.queue.end()) return nullptr;
    SymbolModule* entry = *next;
    lane.queue.erase(next);
    return entry;
  }

  // From when on the first worker keeps other modules waiting. INT64_MAX: it does not, or none waits.
  static int64_t LateNs(const Lane& lane) {
    return lane.first.busy_since_ns == 0 || lane.queue.empty() ? INT64_MAX : lane.first.busy_since_ns + kPatienceNs;
  }

  // Waits for the next module; nullptr at the end. Ends a worker that idles meanwhile. The worker's own thread does it, so
  // a request never meets a worker that is ending. It waits once, so an idle daemon does not wake up.
  SymbolModule* AwaitWork(Lane& lane, Server& server, std::unique_lock<std::mutex>& lock) {
    const int64_t idle_ns = MonotonicNs() + idle_limit_ns;
    while (!stopping) {
      if (SymbolModule* entry = Take(lane, server)) return entry;
      if (server.worker.is_running() && MonotonicNs() >= idle_ns) {
        lock.unlock();
        const LoopWatch::Turn turn(LoopOf(lane));
        server.worker.EndIdle();
        lock.lock();
        continue;
      }
      int64_t wake_ns = server.worker.is_running() ? idle_ns : INT64_MAX;
      if (const int64_t late_ns = LateNs(lane); &server == &second_for_lines && late_ns > MonotonicNs()) {
        wake_ns = std::min(wake_ns, late_ns);
      }
      if (wake_ns == INT64_MAX) {
        work_added.wait(lock);
      } else {
        work_added.wait_until(lock, TimePoint(wake_ns));
      }
    }
    return nullptr;
  }

  void Run(Lane& lane, Server& server) {
    const auto phase = static_cast<size_t>(lane.phase);
    std::unique_lock lock(mutex);
    while (SymbolModule* entry = AwaitWork(lane, server, lock)) {
      entry->users++;
      entry->is_served[phase] = true;
      std::deque<uint64_t>& svmas = entry->waiting[phase];
      size_t batch_size = std::min(svmas.size(), kBatch);
      std::vector<uint64_t> batch(svmas.begin(), svmas.begin() + batch_size);
      svmas.erase(svmas.begin(), svmas.begin() + batch_size);
      if (!svmas.empty()) lane.queue.push_back(entry);
      waiting -= batch_size;
      if (Spared(*entry, lane.phase)) {
        for (uint64_t svma : batch) GiveUp(lane, *entry, svma, 0);
      } else {
        Serve(lane, server, *entry, batch, lock);
      }
      entry->is_served[phase] = false;
      entry->users--;
      // The other lane may have to ask again.
      if (entry->users == 0 && entry->waiting[0].empty() && entry->waiting[1].empty()) entry->file = nullptr;
      cache.EnforceLimit();
      answered.notify_all();
      // What this one left, the other worker of the lane may be the one to take.
      if (!lane.queue.empty()) work_added.notify_all();
    }
  }

  // Asks the worker, without the lock.
  void Serve(Lane& lane, Server& server, SymbolModule& entry, const std::vector<uint64_t>& batch,
             std::unique_lock<std::mutex>& lock) {
    std::shared_ptr<const Module> file = entry.file;
    WorkerRequest request{entry.id, file->fd(), file->path(), lane.phase, batch};
    std::vector<bool> done(batch.size());
    server.busy_since_ns = MonotonicNs();
    // The second worker looks how long this one takes.
    if (!lane.queue.empty()) work_added.notify_all();
    lock.unlock();
    LoopWatch::Turn turn(LoopOf(lane));
    WorkerEnd end = server.worker.Ask(request, [&](uint32_t index, SymbolQuality quality, SourceLocation location) {
      turn.Beat();
      done[index] = true;
      std::lock_guard inner(mutex);
      Answer(lane, entry, batch[index], quality, std::move(location));
    });
    lock.lock();
    server.busy_since_ns = 0;
    if (end == WorkerEnd::kAnswered || end == WorkerEnd::kCancelled) return;
    std::vector<uint64_t> unanswered;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!done[i]) unanswered.push_back(batch[i]);
    }
    if (!unanswered.empty()) HandleFailure(lane, server, entry, end, unanswered);
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
  const int64_t idle_limit_ns;
  Lane names;
  Lane lines;
  // For modules that the first would keep waiting.
  Server second_for_lines;
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

int64_t Symbolizer::worker_restarts() const {
  int64_t deaths = 0;
  for (const State::Server* server : state_->Servers()) deaths += server->worker.deaths();
  return deaths;
}

}  // namespace stackd
