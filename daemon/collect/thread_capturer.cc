#include "daemon/collect/thread_capturer.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/process/process_description.h"

namespace stackd {
namespace {

// A helper that has not begun by then may be stopped with its process.
constexpr int64_t kLookForStopNs = 50 * kNsPerMs;
// Goroutines that have not begun by then may never run again, and what memory says is there at any time. On two busy CPUs,
// in a program that collects garbage all the time, one came after more than 250 ms.
constexpr int64_t kGoroutineBeginsNs = kNsPerSecond;
// The message was sent before the dump began, and the server thread is about to read it.
constexpr int64_t kMemoryArrivesNs = 100 * kNsPerMs;
constexpr useconds_t kLookForMemoryUs = 200;
constexpr int64_t kLoadModulesNs = 2 * kNsPerSecond;
// The time for files that the process did not pass in time before.
constexpr int64_t kLoadAgainNs = 200 * kNsPerMs;
// Tasks say where they wait when they are run next: one whose worker is blocked never does. The process has 100 ms more to
// write down what they said (stackd_task_source_fn).
constexpr int64_t kAskTasksNs = 50 * kNsPerMs;
constexpr int64_t kTellTasksNs = 120 * kNsPerMs;
constexpr int64_t kMinTasksNs = 20 * kNsPerMs;

std::string Number(int64_t n) { return std::to_string(n); }

// How the dump ended, if not well. `answered`: threads with records of their own.
std::string OutcomeNote(const Recording& recording, size_t answered) {
  const auto of = [answered](size_t total) {
    return Number(static_cast<int64_t>(answered)) + " of " + Number(static_cast<int64_t>(total));
  };
  const size_t threads = recording.size();
  if (recording.ended) {
    return "the process ended during the dump: " + of(std::max<size_t>(recording.listed, answered)) +
           " threads had answered";
  }
  if (recording.crashed) {
    return "the process crashed during the dump: " + of(threads) + " threads had answered; the crash has a dump of its own";
  }
  if (recording.stopped) return "the process is stopped: it answers after SIGCONT";
  if (recording.hurried) {
    return "many crashes came at once: " + of(threads) + " threads had answered when the process was let go";
  }
  if (recording.failure != 0) {
    return std::string("its agent could not list its threads: ") + strerror(recording.failure);
  }
  if (recording.unheard) {
    return "its threads were not asked: no goroutine of it came to run in " + Number(kGoroutineBeginsNs / kNsPerSecond) +
           " s";
  }
  if (!recording.done) {
    return "the process did not finish the dump by the deadline: " + of(threads) + " threads had answered";
  }
  if (recording.listed > threads) {
    return Number(recording.listed - static_cast<int64_t>(threads)) +
           " threads are missing: the ring had no room for their statuses";
  }
  return "";
}

}  // namespace

decltype(CrashCapture::id) NewCrashId(int64_t wall_ns) {
  decltype(CrashCapture::id) id;
  // A crash without an id could not be told from others: without random numbers its time is one.
  if (getrandom(id.data(), sizeof(id), 0) != sizeof(id)) id = {static_cast<uint64_t>(wall_ns), 0};
  return id;
}

Result<std::shared_ptr<Capture>> ThreadCapturer::CaptureThreads(CaptureRequest request) {
  request.deadline_ns = std::min(request.deadline_ns, MonotonicNs() + kMaxCaptureNs);
  std::optional<CaptureTurns::Wanted> wanted(std::in_place, &parts_->turns);
  CaptureTurns::Turn turn = parts_->turns.Take(request.deadline_ns);
  if (!turn.owns_lock()) {
    return Error(Code::kDeadlineExceeded,
                 "another dump of processes/" + process_->id() + " was running until the deadline");
  }
  parts_->counters->captures++;
  auto capture = std::make_shared<Capture>();
  capture->trigger = request.trigger;
  capture->hang = request.hang;
  capture->crash = request.exception;
  capture->dump_signal = process_->dump_signal();
  const int64_t read_before_bytes = process_->files().memory_read_bytes();
  const int64_t begin_ns = MonotonicNs();
  Prepare(request.deadline_ns, capture.get());

  Recording recording(parts_->ring.next_seq(), parts_->counters, parts_->stacks_budget);
  RunDump(request, nullptr, &recording, capture.get());
  if (request.only_tid == 0) process_->SetThreadCount(recording.size());
  Finish(&recording, capture.get());
  if (recording.done && request.only_tid == 0) process_->RememberThreads(capture->threads);
  for (ThreadCapture& thread : capture->threads) {
    const auto past = request.past.find(thread.tid);
    if (past == request.past.end()) continue;
    const auto ago_ns = [&](std::optional<int64_t> then_ns) {
      return then_ns ? std::max<int64_t>(0, begin_ns - *then_ns) : -1;
    };
    thread.unmoved_ns = ago_ns(past->second.unmoved_since_ns);
    thread.absent_ns = ago_ns(past->second.absent_at_ns);
  }
  turn.unlock();
  wanted.reset();
  parts_->wait_collector.AddWaits(request.deadline_ns, capture.get());
  // After that: threads run tasks for it, and would not be found waiting where they were captured.
  if (request.only_tid == 0 && !request.is_sample) AddTasks(request.deadline_ns, capture.get());
  capture->memory_read_bytes = process_->files().memory_read_bytes() - read_before_bytes;
  return capture;
}

void ThreadCapturer::Prepare(int64_t deadline_ns, Capture* capture) {
  const int64_t begin_ns = MonotonicNs();
  process_->waker().Wake();
  process_->waker().AwaitAwake(deadline_ns);
  const bool stays_asleep = process_->waker().StaysAsleep();
  capture->begin_wall_ns = WallNs();
  if (capture->crash) capture->crash->id = NewCrashId(capture->begin_wall_ns);
  // What a process that had just come, and had no CPU, did not pass in time is asked for again, for a shorter time.
  const bool has_map = parts_->modules.Map() != nullptr;
  if ((has_map && !parts_->modules.awaits_files()) || process_->IsStopped() || stays_asleep) return;
  parts_->modules.Load(std::min(deadline_ns, begin_ns + (has_map ? kLoadAgainNs : kLoadModulesNs)));
}

void ThreadCapturer::RunDump(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording,
                             Capture* capture) {
  if (const bool is_filtered = process_->waker().is_filtered(); is_filtered || process_->waker().StaysAsleep()) {
    AccountForTheRest(request, recording, capture);
    capture->partial = true;
    capture->notes.push_back("its threads were not asked: " + std::string(is_filtered ? kFilteredLimit : kAsleepLimit));
    return;
  }
  const int64_t begin_ns = MonotonicNs();
  parts_->ring.Begin(STACKD_COMMAND_DUMP, request, {.recording = recording});
  Record(request, in_a_hurry, recording);
  parts_->ring.End();
  capture->duration_ns = MonotonicNs() - begin_ns;

  const size_t answered = recording->size();
  if (!recording->done && !recording->ended) AccountForTheRest(request, recording, capture);
  if (!recording->ended && !recording->stopped && !recording->hurried) {
    LoadModulesAgain(request.deadline_ns, recording->done);
  }
  capture->partial = !recording->done || recording->listed > recording->size();
  if (std::string note = OutcomeNote(*recording, answered); !note.empty()) capture->notes.push_back(std::move(note));
}

void ThreadCapturer::LoadModulesAgain(int64_t deadline_ns, bool answers) {
  const int64_t now_ns = MonotonicNs();
  if (!parts_->modules.awaits_files() || !answers) {
    parts_->modules.LoadIfChanged(std::max(deadline_ns, now_ns + 10 * kNsPerMs));
    return;
  }
  // The agent has done with the threads, and has time for files now. The rest of the time is for what threads wait for. No
  // longer than the first load: a crash of the process would wait for its turn.
  const int64_t left_ns = std::max<int64_t>(0, deadline_ns - now_ns);
  parts_->modules.Load(now_ns + std::min(left_ns / 2, kLoadModulesNs));
}

void ThreadCapturer::Record(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording) {
  const int64_t begin_ns = MonotonicNs();
  const int64_t look_for_stop_ns = begin_ns + std::min(kLookForStopNs, (request.deadline_ns - begin_ns) / 4);
  bool looked_for_stop = false;
  for (;;) {
    const AgentRing::Progress progress = parts_->ring.Poll();
    if (progress.has_begun) recording->listed = progress.listed_count;
    recording->failure = progress.failure;
    recording->done = progress.is_done && progress.failure == 0;
    recording->ended = !progress.is_connected;
    recording->crashed = request.trigger != Trigger::kCrash && parts_->crash.has_crashed();
    recording->hurried = in_a_hurry != nullptr && in_a_hurry();
    if (progress.is_done || recording->ended || recording->crashed || recording->hurried) return;
    const int64_t now_ns = MonotonicNs();
    if (now_ns >= request.deadline_ns) return;
    if (!progress.has_begun && !looked_for_stop && now_ns >= look_for_stop_ns) {
      looked_for_stop = true;
      recording->stopped = process_->IsStopped();
      if (recording->stopped) return;
    }
    recording->unheard = process_->is_goroutine() && !progress.has_begun && now_ns >= begin_ns + kGoroutineBeginsNs;
    if (recording->unheard) return;
    parts_->ring.Wait(progress.doorbell);
  }
}

void ThreadCapturer::AccountForTheRest(const CaptureRequest& request, Recording* recording, Capture* capture) {
  const ProcessFiles& files = process_->files();
  const char process_state = files.State();
  const bool is_stopped = process_state == 'T' || process_state == 't';
  for (const auto& [tid, name] : process_->KnownThreads()) {
    if (recording->Has(static_cast<uint32_t>(tid))) continue;
    if (request.only_tid != 0 && tid != request.only_tid) continue;
    ThreadCapture* thread = recording->Add(static_cast<uint32_t>(tid));
    if (thread == nullptr) return;
    thread->status = is_stopped ? ThreadStatus::kStopped : ThreadStatus::kTimedOut;
    thread->name = name;
    if (is_stopped) thread->kernel_state = process_state;
    // For thousands, procfs would take longer than the caller has.
    if (files.has_folder() && MonotonicNs() < request.deadline_ns) SetStatus(thread);
  }
  if (files.has_folder() || request.only_tid != 0) return;
  const auto unknown = files.ThreadCount() - static_cast<int64_t>(recording->size());
  if (unknown <= 0) return;
  capture->notes.push_back(Number(unknown) + " more threads are not known: they began since its threads were listed last");
}

void ThreadCapturer::SetStatus(ThreadCapture* thread) const {
  thread->name = process_->files().ThreadName(thread->tid);
  thread->kernel_state = process_->StateOf(thread->tid);
  switch (thread->kernel_state) {
    case 'T':
    case 't':
      thread->status = ThreadStatus::kStopped;
      break;
    case 'D':
      thread->status = ThreadStatus::kUninterruptible;
      break;
    case 0:
    case 'Z':
    case 'X':
      thread->status = ThreadStatus::kExited;
      break;
    default:
      thread->status = ThreadStatus::kTimedOut;
  }
}

void ThreadCapturer::Finish(Recording* recording, Capture* capture) {
  AwaitMemory();
  capture->map = parts_->modules.Map();
  if (capture->map == nullptr) capture->map = std::make_shared<const AddressMap>(std::vector<Mapping>{});
  if (process_->files().has_memory()) capture->memory = process_->memory();
  capture->threads = recording->TakeThreads();
  capture->held = recording->TakeHeld();
  const std::vector<std::string>& missing = parts_->modules.notes();
  capture->notes.insert(capture->notes.end(), missing.begin(), missing.end());
  recording->AddNotes(&capture->notes);
  capture->process = process_->Describe();
  // A process that shares as needed has nothing that would be missing.
  std::string loss = process_->shares_as_needed() ? "" : LossOf(capture->process.share);
  if (!loss.empty()) capture->notes.push_back(std::move(loss));
}

void ThreadCapturer::AwaitMemory() const {
  const bool is_passed = __atomic_load_n(&parts_->memory->header()->memory_passed, __ATOMIC_RELAXED) != 0;
  const int64_t deadline_ns = MonotonicNs() + kMemoryArrivesNs;
  if (!is_passed || !process_->shares_as_needed()) return;
  while (!process_->files().has_memory() && process_->connected() && MonotonicNs() < deadline_ns) {
    usleep(kLookForMemoryUs);
  }
}

void ThreadCapturer::AddTasks(int64_t deadline_ns, Capture* capture) {
  if (!process_->connected() || !parts_->tasks.has_tasks() || process_->IsStopped()) return;
  if (process_->waker().is_filtered()) return;
  const int64_t now_ns = MonotonicNs();
  const int64_t left_ns = std::clamp(deadline_ns - now_ns, kMinTasksNs, kAskTasksNs + kTellTasksNs);
  auto table = parts_->tasks.Ask(now_ns + std::min(kAskTasksNs, left_ns / 2), now_ns + left_ns);
  if (table) {
    capture->task_table = std::move(*table);
  } else {
    capture->notes.push_back("its tasks are missing: " + table.error().message);
  }
}

Result<std::shared_ptr<Capture>> ThreadCapturer::Outline() const {
  auto map = parts_->modules.Map();
  if (map == nullptr) {
    return Error(Code::kUnavailable, "what processes/" + process_->id() + " has mapped is not known yet");
  }
  auto outline = std::make_shared<Capture>();
  outline->map = std::move(map);
  if (process_->files().has_memory()) outline->memory = process_->memory();
  outline->process = process_->Describe();
  return outline;
}

}  // namespace stackd
