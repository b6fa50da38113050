#include "daemon/collect/crash_capturer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/crashes/crash_capture.h"

namespace stackd {
namespace {

// A process that has waited for so long is let go as soon as what it said is stored.
constexpr int64_t kPatienceNs = kNsPerSecond;
// Older than a process is held, or a tentative record is valid: the clock of the record is wrong.
constexpr int64_t kMaxAgeNs = 2 * static_cast<int64_t>(STACKD_TENTATIVE_NS);
constexpr int64_t kPrefetchNs = 200 * kNsPerMs;

}  // namespace

void CrashCapturer::PrefetchModules() {
  CaptureTurns::Turn turn = parts_->turns.Take(/*deadline_ns=*/0);
  if (!turn.owns_lock() || parts_->modules.Map() != nullptr) return;
  if (!process_->connected() || !process_->waker().is_awake() || process_->IsStopped()) return;
  parts_->modules.Load(MonotonicNs() + kPrefetchNs);
  turn.unlock();
  // A process that is stopped before its first dump has threads by these.
  (void)parts_->sampler.ReadSchedStats(/*gives_way=*/true);
}

bool CrashCapturer::TakeCrash() {
  const bool has_ended = !process_->connected();
  parts_->ring.Drain();
  if (has_ended) parts_->ring.TakeTentativeCrash();
  if (has_ended) parts_->crash.KeepReport(&parts_->report_file);
  return parts_->crash.Claim();
}

bool CrashCapturer::LoadModulesOfCrash(int64_t deadline_ns) {
  const CaptureTurns::Wanted wanted(&parts_->turns);
  // A live dump that runs ends as soon as it sees the crash.
  const CaptureTurns::Turn turn = parts_->turns.Take(deadline_ns);
  if (!turn.owns_lock()) return !process_->connected();
  ProcessModules& modules = parts_->modules;
  if ((modules.Map() != nullptr && !modules.awaits_files()) || !process_->connected()) return true;
  modules.Load(deadline_ns);
  return !modules.awaits_files() || !process_->connected() || process_->waker().is_filtered();
}

std::shared_ptr<Capture> CrashCapturer::CaptureCrash(int64_t deadline_ns, const std::function<bool()>& in_a_hurry) {
  if (auto report = parts_->crash.TakeReport()) return CaptureReport(std::move(*report));
  CrashRecord crash = std::move(*parts_->crash.TakeRecord());
  const int64_t now_ns = MonotonicNs();
  const int64_t age_ns = now_ns - std::min(now_ns, crash.time_ns);
  auto capture = std::make_shared<Capture>();
  capture->trigger = Trigger::kCrash;
  capture->begin_wall_ns = WallNs() - std::min(age_ns, kMaxAgeNs);
  capture->dump_signal = process_->dump_signal();
  capture->crash = ToCrashCapture(crash);

  const int64_t read_before_bytes = process_->files().memory_read_bytes();
  const CaptureRequest request{.trigger = Trigger::kCrash, .deadline_ns = deadline_ns};
  std::optional<CaptureTurns::Wanted> wanted(std::in_place, &parts_->turns);
  CaptureTurns::Turn turn = parts_->turns.Take(deadline_ns);
  const bool has_turn = turn.owns_lock();
  Recording recording(has_turn ? parts_->ring.next_seq() : 0, parts_->counters, parts_->stacks_budget);
  AddCrashedThread(std::move(crash), &recording, capture.get());
  // Too late, also if it ended while it was asked: its file has what was mapped.
  const bool knows_modules = parts_->modules.Map() != nullptr && !(has_turn && parts_->modules.awaits_files());
  if (!knows_modules && spool_file_ != nullptr && spool_file_->HasCrash(capture->crash->id)) return nullptr;
  if (process_->connected() && has_turn && age_ns < kPatienceNs && !in_a_hurry()) {
    capturer_->RunDump(request, in_a_hurry, &recording, capture.get());
  } else {
    capture->partial = true;
    capture->notes.push_back(!process_->connected() ? "the process had ended: its other threads could not be asked"
                             : has_turn ? "many crashes came at once: the other threads of this process were not asked"
                                        : "another dump did not end: the other threads of this process were not asked");
    if (process_->connected()) parts_->counters->crashes_hurried++;
  }
  process_->SetThreadCount(recording.size());
  capturer_->Finish(&recording, capture.get());
  // What its runtime wrote is whole since the process ended, as which it has no memory any more. Of a process that is held
  // its memory says more.
  if (!process_->connected()) {
    capture->memory = nullptr;
    if (auto report = parts_->report_file.Take()) capture->managed.reports.push_back(std::move(*report));
  }
  if (has_turn) turn.unlock();
  wanted.reset();
  if (parts_->tasks.has_tasks()) {
    capture->notes.push_back(
        "its tasks are missing: to say where they wait they would have to run on, in a process that crashed");
  }
  if (!in_a_hurry()) parts_->wait_collector.AddWaits(request.deadline_ns, capture.get());
  capture->memory_read_bytes = process_->files().memory_read_bytes() - read_before_bytes;
  return capture;
}

std::shared_ptr<Capture> CrashCapturer::CaptureReport(RuntimeReport report) {
  auto capture = std::make_shared<Capture>();
  capture->trigger = Trigger::kCrash;
  capture->begin_wall_ns = WallNs();
  CrashCapture& crash = capture->crash.emplace();
  crash.id = NewCrashId(capture->begin_wall_ns);
  Recording recording(0, parts_->counters);
  capturer_->Finish(&recording, capture.get());
  // Stands for whichever thread it was: the report does not say.
  crash.tid = capture->process.pid;
  ThreadCapture& thread = capture->threads.emplace_back();
  thread.tid = crash.tid;
  thread.status = ThreadStatus::kExited;
  capture->managed.reports.push_back(std::move(report));
  capture->memory = nullptr;
  return capture;
}

}  // namespace stackd
