#include "daemon/pipeline/pipeline.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "daemon/analyze/crash/crash_cause.h"
#include "daemon/assemble/assemble.h"
#include "daemon/base/clock.h"
#include "daemon/base/run_beside.h"
#include "daemon/log/log.h"
#include "daemon/managed/managed_reader.h"
#include "daemon/pipeline/code_names.h"
#include "daemon/pipeline/crash_backlog.h"
#include "daemon/pipeline/dump_id.h"
#include "daemon/pipeline/dump_stages.h"
#include "daemon/pipeline/dump_watchers.h"
#include "daemon/pipeline/perf_maps.h"
#include "daemon/pipeline/single_flight.h"
#include "daemon/resymbolize/earlier_stacks.h"
#include "daemon/resymbolize/module_finder.h"
#include "daemon/store/raw_capture.h"

namespace stackd {
namespace {

using SharedDump = std::shared_ptr<const v1::Dump>;

// Part of a request's time that is kept for what comes behind the capture. Threads that never answer must not cost the
// names of those that did. A dump of 10,000 threads takes 25 ms there: listing those that did not answer, assembling,
// storing. A caller in a hurry would rather have fewer stacks than no answer.
int64_t NamingTimeNs(int64_t budget_ns) {
  int64_t least_ns = std::clamp<int64_t>(budget_ns * 5 / 8, 0, 30 * kNsPerMs);
  return std::clamp<int64_t>(budget_ns / 5, least_ns, kNsPerSecond / 2);
}

// Only the next crash waits for the names of a crash.
constexpr int64_t kNameCrashNs = 10 * kNsPerSecond;
constexpr int kBacklogThreads = 2;
// At a start, the log names at most so many of the captures that were set aside.
constexpr size_t kMaxNamedSetAside = 16;
// Time to read the memory of the runtimes of a process that is held in its crash; the second where other processes wait for
// it. A whole dump of a JVM takes 20 ms on a free core, many times that where a pod has little of a busy one. At half of
// the hold (2 s) the process would write its crash to a file besides.
constexpr int64_t kReadManagedOfCrashNs = kNsPerSecond / 2;
constexpr int64_t kReadManagedInAHurryNs = 20 * kNsPerMs;

// Process and stack limit: a caller that wants deeper stacks is not served with shallow ones. A hang has a dump of its own,
// which says why it was taken, and so has an exception. A sample is no dump.
using DumpKey = std::tuple<std::string, uint32_t, Trigger, Quiet, bool>;

constexpr char kLate[] = "another call is making this dump and was not done by this call's deadline; it will be stored";

LogField ContainerOf(const v1::Dump& dump) {
  const auto& place = dump.process().resource_attributes();
  const auto container = place.find("k8s.container.name");
  return LogField::IfKnown("k8s.container.name", container == place.end() ? "" : container->second);
}

void LogCrash(const v1::Dump& dump, bool stored) {
  Log(LogLevel::kWarning, "process crashed",
      {{"process", dump.process().display_name()},
       {"pid", dump.process().pid()},
       ContainerOf(dump),
       {"signal", dump.crash().signal_name()},
       {"explanation", dump.crash().explanation()},
       {"fingerprint", dump.crash().fingerprint()},
       {"dump", dump.name()},
       {"threads", dump.thread_counts().listed()},
       {"from_spool", dump.crash().from_spool() ? 1 : 0},
       {"stored", stored ? 1 : 0}});
}

void LogDump(const v1::Dump& dump, bool stored, const StageTimes& times) {
  Log(LogLevel::kInfo, stored ? "dump stored" : "dump made",
      {{"process", dump.process().display_name()},
       ContainerOf(dump),
       {"dump", dump.name()},
       {"threads", dump.thread_counts().listed()},
       {"captured", dump.thread_counts().captured()},
       {"stacks", dump.stacks_size()},
       {"groups", dump.groups_size()},
       {"capture_us", times.capture_ns / 1000},
       {"runtimes_us", times.runtimes_ns / 1000},
       {"unwind_us", times.unwind_ns / 1000},
       {"name_us", times.name_ns / 1000},
       {"assemble_us", times.assemble_ns / 1000},
       {"analyze_us", times.analyze_ns / 1000},
       {"pack_us", times.pack_ns / 1000},
       {"store_us", times.store_ns / 1000}});
}

// What is stored of a dump before its stacks are unwound.
v1::Dump HeaderOf(const Capture& capture, const std::string& id) {
  v1::Dump header = DumpHeader(capture, id);
  if (capture.crash) *header.mutable_crash() = ExplainCrash(capture, nullptr);
  return header;
}

std::string TimeInWords(int64_t wall_ns) {
  const time_t seconds = wall_ns / kNsPerSecond;
  tm utc;
  gmtime_r(&seconds, &utc);
  char text[64];
  return {text, strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc)};
}

}  // namespace

struct Pipeline::State {
  State(Collector* a_collector, Symbolizer* a_symbolizer, DumpStore* a_store, std::vector<std::string> file_dirs,
        ByteBudget* dumps)
      : collector(a_collector),
        symbolizer(a_symbolizer),
        store(a_store),
        modules(std::move(file_dirs)),
        stages(a_symbolizer, dumps, &counters.measures),
        perf_maps(a_collector, dumps) {}

  std::string NextId(int64_t wall_ns) {
    std::lock_guard lock(mutex);
    return ids.Next(wall_ns);
  }

  Result<SharedDump> Make(const std::string& process_id, const CaptureRequest& request);
  // The same without the store: the dump has no name.
  Result<std::shared_ptr<v1::Dump>> MakeUnstored(const std::string& process_id, const CaptureRequest& request);
  Result<SharedDump> Sample(const std::string& process_id, const CaptureRequest& request);
  // The stages behind a capture. Code outside of files has the names that `code_names` gives.
  MadeDump RunStages(const Capture& capture, int64_t deadline_ns, const std::string& id, StageTimes* times,
                     CodeNames code_names);
  // Reads them from a process that is there to be asked.
  CodeNames NamesOfLive(const Capture& capture, int64_t deadline_ns) const;
  // Captures the process. Counts a failure.
  Result<std::shared_ptr<Capture>> TakeCapture(const std::string& process_id, CaptureRequest request);
  // Reads what runtimes know of the process just captured, and which of the cycles that their locks make are some.
  void ReadManaged(int64_t deadline_ns, const std::shared_ptr<Capture>& capture) const;
  // `packed` is the dump. True if it is stored now.
  bool Store(const std::shared_ptr<v1::Dump>& dump, Result<PackedDump> packed, const Result<void>& raw_stored);
  // Logs a crash, and tells the watchers of what is stored.
  void Publish(const std::shared_ptr<v1::Dump>& dump, bool stored) const;
  void FinishCrash(UnfinishedCrash crash);
  bool FinishCrash(const Capture& capture, std::shared_ptr<const PerfMapFile> perf_map, const std::string& id,
                   const Result<void>& raw_stored);
  Result<std::shared_ptr<Capture>> ReadCapture(const std::string& dump_name);
  Result<SharedDump> Resymbolize(const std::string& name, int64_t deadline_ns);

  Collector* const collector;
  Symbolizer* const symbolizer;
  DumpStore* const store;
  ModuleFinder modules;
  ManagedReader managed;
  PipelineCounters counters;
  DumpStages stages;
  const PerfMaps perf_maps;
  DumpWatchers watchers;
  SingleFlight<DumpKey, SharedDump> dumps{kLate};
  SingleFlight<std::string, SharedDump> resymbolized{kLate};  // by the dump's name
  std::timed_mutex resymbolizing;

  std::mutex mutex;  // of the fields below
  DumpIds ids;
  std::function<std::map<int32_t, ThreadPast>(const std::string&)> before_capture;
};

bool Pipeline::State::Store(const std::shared_ptr<v1::Dump>& dump, Result<PackedDump> packed,
                            const Result<void>& raw_stored) {
  Result<void> stored = packed ? store->Put(std::move(*packed)) : std::unexpected(packed.error());
  if (stored) {
    // The finished dump is there; only naming it again later is lost.
    if (!raw_stored)
      Log(LogLevel::kWarning, "raw capture not stored", {{"dump", dump->name()}, {"err", raw_stored.error().message}});
    return true;
  }
  ++counters.dumps_unstored;
  dump->set_stored(false);
  dump->add_notes("this dump is not stored, and this answer is the only copy: " + stored.error().message);
  Log(LogLevel::kError, "dump not stored", {{"dump", dump->name()}, {"err", stored.error().message}});
  return false;
}

void Pipeline::State::Publish(const std::shared_ptr<v1::Dump>& dump, bool stored) const {
  if (dump->has_crash()) LogCrash(*dump, stored);
  if (stored) watchers.Notify(dump);
}

void Pipeline::State::ReadManaged(int64_t deadline_ns, const std::shared_ptr<Capture>& capture) const {
  managed.Read(deadline_ns, capture);
  const auto look = [&](const std::vector<ThreadWait>& sleeping, int64_t look_deadline_ns) {
    return managed.ReadWaits(capture, sleeping, look_deadline_ns);
  };
  collector->ConfirmWaits(capture->process.id, look, deadline_ns, capture.get());
}

Result<std::shared_ptr<Capture>> Pipeline::State::TakeCapture(const std::string& process_id, CaptureRequest request) {
  std::unique_lock lock(mutex);
  const auto notice = before_capture;
  lock.unlock();
  if (notice) request.past = notice(process_id);
  Result<std::shared_ptr<Capture>> capture = collector->CaptureProcess(process_id, request);
  if (!capture) counters.CountFailed(request.trigger);
  return capture;
}

CodeNames Pipeline::State::NamesOfLive(const Capture& capture, int64_t deadline_ns) const {
  return CodeNames([this, id = capture.process.id, deadline_ns] { return perf_maps.Read(id, deadline_ns); });
}

MadeDump Pipeline::State::RunStages(const Capture& capture, int64_t deadline_ns, const std::string& id, StageTimes* times,
                                    CodeNames code_names) {
  MadeDump made = stages.Run(capture, deadline_ns, id, times, /*earlier=*/nullptr,
                             [&](uint64_t avma) { return code_names.NameOf(avma); });
  code_names.AddProblemTo(made.dump.get());
  return made;
}

Result<SharedDump> Pipeline::State::Make(const std::string& process_id, const CaptureRequest& request) {
  Stopwatch stopwatch;
  StageTimes times;
  CaptureRequest capture_request = request;
  capture_request.deadline_ns -= NamingTimeNs(request.deadline_ns - MonotonicNs());
  const Result<std::shared_ptr<Capture>> captured = TakeCapture(process_id, capture_request);
  if (!captured) return std::unexpected(captured.error());
  const Capture& capture = **captured;
  times.capture_ns = stopwatch.LapNs();
  // A thread that never answers costs the frames of runtimes no more than half of the time that is left.
  const int64_t half_ns = (request.deadline_ns - MonotonicNs()) / 2;
  ReadManaged(std::max(capture_request.deadline_ns, MonotonicNs() + half_ns), *captured);
  if (request.trigger == Trigger::kSelf || request.exception) collector->SayDumpIsRead(process_id);
  times.runtimes_ns = stopwatch.LapNs();
  if (capture.map != nullptr) modules.Learn(capture.process.uid, *capture.map);
  const std::string id = NextId(capture.begin_wall_ns);

  // The raw copy is on its way to the disk while this thread unwinds.
  Result<void> raw_stored;
  std::jthread raw_writer = RunBeside([&] { raw_stored = store->PutRaw(HeaderOf(capture, id), SerializeRaw(capture)); });
  const MadeDump made = RunStages(capture, request.deadline_ns, id, &times, NamesOfLive(capture, request.deadline_ns));
  stopwatch.LapNs();
  Result<PackedDump> packed = DumpStore::Pack(made.dump);
  times.pack_ns = stopwatch.LapNs();
  if (raw_writer.joinable()) raw_writer.join();
  const bool stored = Store(made.dump, std::move(packed), raw_stored);
  times.store_ns = stopwatch.LapNs();
  counters.Count(capture, *made.dump, made.stacks);
  LogDump(*made.dump, stored, times);
  Publish(made.dump, stored);
  return made.dump;
}

Result<std::shared_ptr<v1::Dump>> Pipeline::State::MakeUnstored(const std::string& process_id,
                                                                const CaptureRequest& request) {
  CaptureRequest capture_request = request;
  capture_request.deadline_ns -= NamingTimeNs(request.deadline_ns - MonotonicNs());
  const auto captured = collector->CaptureProcess(process_id, capture_request);
  if (!captured) return std::unexpected(captured.error());
  ReadManaged(capture_request.deadline_ns, *captured);
  StageTimes times;
  CodeNames code_names = NamesOfLive(**captured, request.deadline_ns);
  std::shared_ptr<v1::Dump> dump =
      RunStages(**captured, request.deadline_ns, /*id=*/"", &times, std::move(code_names)).dump;
  dump->clear_name();
  dump->set_stored(false);
  return dump;
}

Result<SharedDump> Pipeline::State::Sample(const std::string& process_id, const CaptureRequest& request) {
  auto dump = MakeUnstored(process_id, request);
  ++(dump ? counters.samples : counters.samples_failed);
  return dump;
}

bool Pipeline::State::FinishCrash(const Capture& capture, std::shared_ptr<const PerfMapFile> perf_map,
                                  const std::string& id, const Result<void>& raw_stored) {
  StageTimes times;
  CodeNames code_names([&] { return perf_map; });
  const MadeDump made = RunStages(capture, MonotonicNs() + kNameCrashNs, id, &times, std::move(code_names));
  const bool stored = Store(made.dump, DumpStore::Pack(made.dump), raw_stored);
  counters.Count(capture, *made.dump, made.stacks);
  Publish(made.dump, stored);
  return stored;
}

Result<std::shared_ptr<Capture>> Pipeline::State::ReadCapture(const std::string& dump_name) {
  auto bytes = store->GetRaw(dump_name);
  if (!bytes) return std::unexpected(bytes.error());
  auto raw = ParseRaw(*bytes);
  if (!raw) return std::unexpected(raw.error());
  ModuleFinder::Found found = modules.Find(*raw);
  auto capture = std::make_shared<Capture>(std::move(raw->capture));
  capture->map = std::move(found.map);
  if (!found.note.empty()) capture->notes.push_back(std::move(found.note));
  return capture;
}

void Pipeline::State::FinishCrash(UnfinishedCrash crash) {
  // Before a byte of it is looked at. A store that cannot note it says so when the dump is to be stored.
  (void)store->NoteAttempt(crash.dump_name);
  if (crash.capture == nullptr) {
    ++counters.crashes_reread;
    auto capture = ReadCapture(crash.dump_name);
    if (!capture) {
      store->EndAttempt(crash.dump_name);
      Log(LogLevel::kError, "dump not finished", {{"dump", crash.dump_name}, {"err", capture.error().message}});
      return;
    }
    crash.capture = std::move(*capture);
  }
  const bool stored =
      FinishCrash(*crash.capture, crash.perf_map, crash.dump_name.substr(crash.dump_name.rfind('/') + 1), {});
  if (!stored) store->EndAttempt(crash.dump_name);
}

Result<SharedDump> Pipeline::State::Resymbolize(const std::string& name, int64_t deadline_ns) {
  std::unique_lock turn(resymbolizing, std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs())));
  if (!turn) {
    return Error(Code::kDeadlineExceeded, "other dumps are being named anew and were not done by this call's deadline");
  }
  Stopwatch stopwatch;
  Result<v1::Dump> stored = store->Get(name);
  if (!stored) return std::unexpected(std::move(stored.error()));
  auto capture = ReadCapture(name);
  if (!capture) return std::unexpected(std::move(capture.error()));
  for (const Mapping& mapping : (*capture)->map->mappings()) {
    if (mapping.module != nullptr) symbolizer->Forget(*mapping.module);
  }
  const EarlierStacks earlier(*stored);
  StageTimes times;
  const auto dump = stages.Run(**capture, deadline_ns, name.substr(name.rfind('/') + 1), &times, &earlier).dump;
  dump->add_notes("unwound and named anew at " + TimeInWords(WallNs()));
  Result<PackedDump> packed = DumpStore::Pack(dump);
  Result<void> replaced = packed ? store->Replace(std::move(*packed)) : std::unexpected(packed.error());
  if (!replaced) return std::unexpected(std::move(replaced.error()));
  ++counters.dumps_resymbolized;
  Log(LogLevel::kInfo, "dump named anew",
      {{"process", dump->process().display_name()}, {"dump", name}, {"took_us", stopwatch.LapNs() / 1000}});
  return dump;
}

Pipeline::Pipeline(Collector* collector, Symbolizer* symbolizer, DumpStore* store, std::vector<std::string> file_dirs,
                   ByteBudget* dumps)
    : state_(std::make_unique<State>(collector, symbolizer, store, std::move(file_dirs), dumps)),
      backlog_(std::make_unique<CrashBacklog>(
          kBacklogThreads, [state = state_.get()](UnfinishedCrash crash) { state->FinishCrash(std::move(crash)); })) {}

Pipeline::~Pipeline() = default;

void Pipeline::AddCrash(std::shared_ptr<Capture> capture, const std::function<void()>& release) {
  const int64_t read_managed_ns = state_->collector->HurriesCrashes() ? kReadManagedInAHurryNs : kReadManagedOfCrashNs;
  const int64_t deadline_ns = MonotonicNs() + read_managed_ns;
  state_->ReadManaged(deadline_ns, capture);
  const auto perf_map = state_->perf_maps.ReadOfCrash(*capture, deadline_ns);
  const std::string id = state_->NextId(capture->begin_wall_ns);
  const v1::Dump header = HeaderOf(*capture, id);
  Result<void> raw_stored = state_->store->PutRaw(header, SerializeRaw(*capture));
  if (raw_stored) {
    release();
    backlog_->Add({header.name(), std::move(capture), perf_map});
    return;
  }
  if (raw_stored.error().code == Code::kAlreadyExists) {
    ++state_->counters.crashes_known;
    release();
    return;
  }
  Log(LogLevel::kError, "crash not stored", {{"dump", header.name()}, {"err", raw_stored.error().message}});
  // A file waits for better times. A process waits no longer than it can, and leaves a file; what is here is told at once.
  if (!capture->crash->from_spool && state_->FinishCrash(*capture, perf_map, id, raw_stored)) release();
}

void Pipeline::ResumeUnfinished() {
  for (std::string& name : state_->store->Unfinished()) backlog_->Add({std::move(name), nullptr, nullptr});
  for (std::string& name : state_->store->UnfinishedAndSuspect()) backlog_->AddLater({std::move(name), nullptr, nullptr});
  const std::vector<std::string> set_aside = state_->store->SetAside();
  state_->counters.captures_set_aside = std::ssize(set_aside);
  for (size_t i = 0; i < std::min(set_aside.size(), kMaxNamedSetAside); ++i) {
    Log(LogLevel::kWarning, "a stored capture ended stackd more than once: it is set aside and not tried again",
        {{"dump", set_aside[i]}, {"count", std::ssize(set_aside)}});
  }
}

Result<SharedDump> Pipeline::CreateDump(const std::string& process_id, const CaptureRequest& request,
                                        const MayBegin& may_begin) {
  ScopedCount running(&state_->counters.dumps_running);
  const Trigger reason = request.hang || request.exception ? request.trigger : Trigger::kRequest;
  const DumpKey key(process_id, request.max_stack_bytes, reason, request.quiet, request.is_sample);
  while (true) {
    auto [dump, deadline_ns] = state_->dumps.Do(key, request.deadline_ns, may_begin, [&] {
      return request.is_sample ? state_->Sample(process_id, request) : state_->Make(process_id, request);
    });
    // What another call had no time for, this one may have.
    bool cut_short = dump && (*dump)->state() == v1::Dump::PARTIAL && deadline_ns < request.deadline_ns - kNsPerSecond;
    if (!cut_short) return dump;
  }
}

Result<std::vector<std::string>> Pipeline::FunctionsOf(const std::string& process_id, int32_t tid, int64_t deadline_ns) {
  const CaptureRequest request{.deadline_ns = deadline_ns - NamingTimeNs(deadline_ns - MonotonicNs()), .only_tid = tid};
  auto captured = state_->collector->CaptureProcess(process_id, request);
  if (!captured) return std::unexpected(std::move(captured.error()));
  Capture& capture = **captured;
  // Drops other threads of the process that answered, too. Before runtimes are asked: a thread that was late with an answer
  // still looks at threads.
  std::erase_if(capture.threads, [&](const ThreadCapture& thread) { return thread.tid != tid; });
  state_->managed.Read(request.deadline_ns, *captured, /*frames_only=*/true);
  return state_->stages.Functions(capture, deadline_ns);
}

Result<std::optional<v1::Finding>> Pipeline::FindDeadlock(const std::string& process_id, int64_t deadline_ns) {
  // That a process might hang is no reason to interrupt it.
  const auto dump = state_->MakeUnstored(process_id, {.deadline_ns = deadline_ns, .quiet = Quiet::kOnly});
  if (!dump) return std::unexpected(dump.error());
  for (v1::Finding finding : (*dump)->findings()) {
    if (finding.severity() != v1::Finding::HANG) continue;
    if (finding.kind() == v1::Finding::DEADLOCK || finding.kind() == v1::Finding::SELF_DEADLOCK) return finding;
    if (finding.kind() != v1::Finding::OWNER_UNKNOWN) continue;
    const std::set<int32_t> waiters(finding.tids().begin(), finding.tids().end());
    for (const v1::Thread& thread : (*dump)->threads()) {
      if (!thread.is_agent() && !waiters.contains(thread.tid())) finding.add_tids(thread.tid());
    }
    return finding;
  }
  return std::nullopt;
}

Result<std::vector<ManagedWait>> Pipeline::ReadLockWaits(const std::string& process_id, std::vector<ThreadWait> sleeping,
                                                         int64_t deadline_ns) {
  auto outline = state_->collector->Outline(process_id);
  if (!outline) return std::unexpected(std::move(outline.error()));
  auto waits = state_->managed.ReadWaits(*outline, std::move(sleeping), deadline_ns);
  if (!waits) return Error(Code::kUnavailable, "the memory of processes/" + process_id + " could not be read in time");
  return std::move(*waits);
}

Result<ManagedFacts> Pipeline::ReadGoroutines(const std::string& process_id, int64_t deadline_ns) {
  auto outline = state_->collector->Outline(process_id);
  if (!outline) return std::unexpected(std::move(outline.error()));
  auto facts = state_->managed.ReadGoroutines(*outline, deadline_ns);
  if (!facts) return Error(Code::kUnavailable, "the goroutines of processes/" + process_id + " could not be read in time");
  return std::move(*facts);
}

Result<SharedDump> Pipeline::Resymbolize(const std::string& name, int64_t deadline_ns, const MayBegin& may_begin) {
  ScopedCount running(&state_->counters.dumps_running);
  return state_->resymbolized.Do(name, deadline_ns, may_begin, [&] { return state_->Resymbolize(name, deadline_ns); })
      .result;
}

void Pipeline::BeforeCapture(std::function<std::map<int32_t, ThreadPast>(const std::string&)> notice) {
  std::lock_guard lock(state_->mutex);
  state_->before_capture = std::move(notice);
}

std::shared_ptr<void> Pipeline::Watch(std::function<void(SharedDump)> watcher) {
  return state_->watchers.Add(std::move(watcher));
}

const PipelineMeasures& Pipeline::Measures() const { return state_->counters.measures; }

std::map<std::string, int64_t> Pipeline::Counters() const {
  std::map<std::string, int64_t> counters = state_->counters.ByName();
  counters["dumps_shared"] = state_->dumps.joined() + state_->resymbolized.joined();
  counters["crashes_waiting"] = static_cast<int64_t>(backlog_->waiting());
  return counters;
}

}  // namespace stackd
