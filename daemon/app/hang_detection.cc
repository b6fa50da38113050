#include "daemon/app/hang_detection.h"

#include <algorithm>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/detect/respond/hang_desk.h"
#include "daemon/detect/rules/rule_actions.h"
#include "daemon/detect/watch/detector.h"

namespace stackd {
namespace {

// Time for one thread of a process: longer, and other processes wait for their looks.
constexpr int64_t kFunctionsNs = 500 * kNsPerMs;
// Some milliseconds, where nothing is in the way.
constexpr int64_t kReadLockWaitsNs = 100 * kNsPerMs;
// To read all goroutines of a process, and to look at those that wait for locks for a tenth of a second.
constexpr int64_t kReadGoroutinesNs = kNsPerSecond;
// To look for a cycle in the stacks of a whole process.
constexpr int64_t kFindCycleNs = kNsPerSecond;

class CollectorProbe final : public ProcessProbe {
 public:
  CollectorProbe(Collector* collector, Pipeline* pipeline) : collector_(collector), pipeline_(pipeline) {}

  std::vector<ProcessDescription> Processes() override { return collector_->Processes(); }
  Result<std::vector<ThreadSchedStat>> ReadSchedStats(const std::string& process_id) override {
    return collector_->ReadSchedStats(process_id);
  }
  Result<std::vector<ThreadWait>> SampleWaits(const std::string& process_id, int64_t timeout_ns) override {
    return collector_->SampleWaits(process_id, MonotonicNs() + timeout_ns);
  }
  Result<std::vector<FutexWord>> ReadFutexes(const std::string& process_id, std::span<const FutexWait> waits) override {
    return collector_->ReadFutexes(process_id, waits);
  }
  Result<std::vector<WaitedFd>> DescribeFds(const std::string& process_id, std::span<const int32_t> fds,
                                            int64_t timeout_ns) override {
    return collector_->DescribeFds(process_id, fds, MonotonicNs() + timeout_ns);
  }
  Result<std::vector<Heartbeat>> Heartbeats(const std::string& process_id) override {
    return collector_->Heartbeats(process_id);
  }
  Result<SigtermSigns> ReadSigtermSigns(const std::string& process_id) override {
    return collector_->ReadSigtermSigns(process_id);
  }
  std::vector<int64_t> ReadProcessSchedStats(const std::string& process_id) override {
    return collector_->ReadProcessSchedStats(process_id);
  }
  char StateOf(const std::string& process_id, int32_t tid) override { return collector_->StateOf(process_id, tid); }
  Result<std::vector<std::string>> FunctionsOf(const std::string& process_id, int32_t tid) override {
    return pipeline_->FunctionsOf(process_id, tid, MonotonicNs() + kFunctionsNs);
  }
  Result<std::vector<ManagedWait>> ReadLockWaits(const std::string& process_id,
                                                 std::span<const ThreadWait> sleeping) override {
    return pipeline_->ReadLockWaits(process_id, {sleeping.begin(), sleeping.end()}, MonotonicNs() + kReadLockWaitsNs);
  }
  Result<Goroutines> ReadStuckGoroutines(const std::string& process_id) override {
    auto facts = pipeline_->ReadGoroutines(process_id, MonotonicNs() + kReadGoroutinesNs);
    if (!facts) return std::unexpected(facts.error());
    return Goroutines{.is_go = !facts->runtimes.empty(),
                      .has_memory = std::ranges::any_of(
                          facts->runtimes, [](const RuntimeDescription& runtime) { return runtime.problem.empty(); }),
                      .count = facts->tasks.size(),
                      .stuck = std::move(facts->stuck_goroutines)};
  }
  Result<std::optional<CycleInStacks>> FindCycle(const std::string& process_id) override {
    auto finding = pipeline_->FindDeadlock(process_id, MonotonicNs() + kFindCycleNs);
    if (!finding) return std::unexpected(finding.error());
    if (!*finding) return std::nullopt;
    CycleInStacks cycle{.explanation = (*finding)->explanation()};
    if ((*finding)->kind() == v1::Finding::OWNER_UNKNOWN) {
      cycle.explanation += ", and each other thread waits as well";
      cycle.tids.assign((*finding)->tids().begin(), (*finding)->tids().end());
      cycle.owner_is_unknown = true;
    }
    for (const v1::Finding::Edge& edge : (*finding)->edges()) cycle.tids.push_back(edge.waiter_tid());
    return cycle;
  }

 private:
  Collector* const collector_;
  Pipeline* const pipeline_;
};

std::string IdOf(const v1::Process& process) { return process.name().substr(process.name().find('/') + 1); }

HangDump ToHangDump(const v1::Dump& dump) {
  const auto is_hang = [](const v1::Finding& finding) { return finding.severity() == v1::Finding::HANG; };
  return {.name = dump.name(),
          .explanation = dump.hang().explanation(),
          .is_stored = dump.stored(),
          .is_confirmed = std::ranges::any_of(dump.findings(), is_hang)};
}

}  // namespace

struct HangDetection::State {
  State(Collector* collector, Pipeline* pipeline) : probe(collector, pipeline) {}
  // The detector calls the desk, and the desk the detector.
  ~State() {
    if (detector != nullptr) detector->Stop();
    watch.reset();
    desk.reset();
  }

  CollectorProbe probe;
  std::shared_ptr<RuleActions> actions;
  std::unique_ptr<HangDesk> desk;
  std::shared_ptr<Detector> detector;
  std::shared_ptr<void> watch;
};

Result<std::unique_ptr<HangDetection>> HangDetection::Start(Collector* collector, Pipeline* pipeline, ProcessHealth* health,
                                                            Rules rules, const std::string& address) {
  auto state = std::make_unique<State>(collector, pipeline);
  State* const s = state.get();
  auto actions = RuleActions::Start(rules, address);
  if (!actions) return std::unexpected(actions.error());
  s->actions = std::move(*actions);
  const auto create_dump = [pipeline](const std::string& process_id, const CaptureRequest& request) -> Result<HangDump> {
    auto dump = pipeline->CreateDump(process_id, request);
    if (!dump) return std::unexpected(dump.error());
    return ToHangDump(**dump);
  };
  const auto run = [s](const std::string& program, const HangDump& dump) { s->actions->Run(program, dump.name, "HANG"); };
  s->desk =
      std::make_unique<HangDesk>(health, HangDeskOptions{.create_dump = create_dump, .run = run, .clock_ns = MonotonicNs});
  s->detector = std::make_shared<Detector>(
      &s->probe, DetectorOptions{.rules = std::move(rules),
                                 .on_suspicion = [s](SharedSuspicion suspicion) { s->desk->Add(std::move(suspicion)); },
                                 .on_gone = [s](const std::string& process_id) { s->desk->Forget(process_id); }});
  // A thread that captures just then, or tells of a dump, may outlive the detection.
  s->watch = pipeline->Watch([weak_detector = std::weak_ptr(s->detector),
                              weak_actions = std::weak_ptr(s->actions)](std::shared_ptr<const v1::Dump> dump) {
    const std::string id = IdOf(dump->process());
    if (const auto detector = weak_detector.lock()) detector->AfterCapture(id);
    const auto actions = weak_actions.lock();
    if (actions == nullptr || dump->trigger() != v1::Dump::CRASH) return;
    ProcessDescription process;
    process.id = id;
    process.display_name = dump->process().display_name();
    process.executable = dump->process().executable();
    actions->OnCrash(process, dump->name(), MonotonicNs());
  });
  pipeline->BeforeCapture([weak = std::weak_ptr(s->detector)](const std::string& process_id) {
    const auto detector = weak.lock();
    return detector == nullptr ? std::map<int32_t, ThreadPast>() : detector->BeforeCapture(process_id);
  });
  s->detector->Start();
  return std::unique_ptr<HangDetection>(new HangDetection(std::move(state)));
}

HangDetection::HangDetection(std::unique_ptr<State> state) : state_(std::move(state)) {}

HangDetection::~HangDetection() = default;

std::optional<int32_t> HangDetection::MovingThreads(const std::string& process_id) const {
  return state_->detector->MovingThreads(process_id);
}

std::map<std::string, int64_t> HangDetection::Counters() const {
  std::map<std::string, int64_t> counters = state_->detector->Counters();
  counters.merge(state_->desk->Counters());
  return counters;
}

}  // namespace stackd
