#include "daemon/detect/respond/hang_desk.h"

#include <chrono>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/base/printable.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

constexpr int64_t kDumpNs = 5 * kNsPerSecond;
// A question for the health of a process waits no longer for its dump.
constexpr int64_t kPatienceNs = 5 * kNsPerSecond;
// While suspicions wait for room, the queue is asked again so often.
constexpr auto kLookAgain = std::chrono::milliseconds(250);

const char* InWords(HangCause cause) {
  switch (cause) {
    case HangCause::kHeartbeatMissed:
      return "HEARTBEAT_MISSED";
    case HangCause::kDeadlock:
      return "DEADLOCK";
    case HangCause::kSpin:
      return "SPIN";
    case HangCause::kNoProgress:
      return "NO_PROGRESS";
    case HangCause::kNotGone:
      return "NOT_GONE";
  }
  return "CAUSE_UNSPECIFIED";
}

void LogHang(LogLevel level, std::string_view message, const Suspicion& suspicion, std::string_view why) {
  Log(level, message,
      {{"process", PrintableText(suspicion.process_name)},
       {"id", "processes/" + suspicion.process_id},
       {"cause", InWords(suspicion.hang.cause)},
       {"explanation", PrintableText(suspicion.hang.explanation)},
       {"rule", suspicion.hang.rule},
       {"err", why}});
}

}  // namespace

HangDesk::HangDesk(ProcessHealth* health, HangDeskOptions options) : health_(health), options_(std::move(options)) {
  for (int i = 0; i < options_.dumpers; ++i) dumpers_.emplace_back([this] { Run(); });
}

HangDesk::~HangDesk() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& dumper : dumpers_) dumper.join();
}

void HangDesk::Add(SharedSuspicion suspicion) {
  health_->Note(suspicion);
  std::unique_lock lock(mutex_);
  if (queue_.Add(suspicion, options_.clock_ns()) == HangQueue::Verdict::kQueued) {
    changed_.notify_one();
    return;
  }
  lock.unlock();
  ++in_cooldown_;
  // A process could have as many of these as it likes.
  LogHang(LogLevel::kDebug, "process still hangs", *suspicion, "a dump of it is there already");
  if (MakesIll(*suspicion)) health_->SetIll(std::move(suspicion));
}

void HangDesk::Forget(const std::string& process_id) {
  std::lock_guard lock(mutex_);
  queue_.Forget(process_id);
}

void HangDesk::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const int64_t now_ns = options_.clock_ns();
    SharedSuspicion next = queue_.Take(now_ns);
    const std::vector<SharedSuspicion> overdue = queue_.TakeOverdue(now_ns, kPatienceNs);
    if (next == nullptr && overdue.empty()) {
      if (queue_.waiting() == 0) {
        changed_.wait(lock);
      } else {
        changed_.wait_for(lock, kLookAgain);
      }
      continue;
    }
    lock.unlock();
    for (const SharedSuspicion& suspicion : overdue) {
      LogHang(LogLevel::kWarning, "process hangs, dump put off", *suspicion, "its rule has had its share of dumps");
      if (MakesIll(*suspicion)) health_->SetIll(suspicion);
    }
    const LoopWatch::Turn turn(Loop::kHangDumps);
    const bool was_dumped = next == nullptr || Dump(*next);
    if (next != nullptr && MakesIll(*next)) health_->SetIll(next);
    lock.lock();
    if (!was_dumped && !queue_.Return(std::move(next), now_ns)) ++lost_;
  }
}

bool HangDesk::Dump(const Suspicion& suspicion) {
  CaptureRequest request{.trigger = Trigger::kHang, .deadline_ns = MonotonicNs() + kDumpNs};
  request.hang = suspicion.hang;
  request.quiet = suspicion.rule->quiet;
  const Result<HangDump> dump = options_.create_dump(suspicion.process_id, request);
  if (!dump) {
    ++failed_;
    LogHang(LogLevel::kWarning, "process hangs, dump failed", suspicion, dump.error().message);
    return dump.error().code == Code::kNotFound;  // the process has gone
  }
  ++dumps_;
  if (!dump->is_confirmed) ++unconfirmed_;
  Log(LogLevel::kWarning, "process hangs",
      {{"process", PrintableText(suspicion.process_name)},
       {"id", "processes/" + suspicion.process_id},
       {"cause", InWords(suspicion.hang.cause)},
       {"explanation", PrintableText(dump->explanation)},
       {"rule", suspicion.hang.rule},
       {"tid", suspicion.hang.tid},
       {"lasted_ms", suspicion.hang.duration_ns / kNsPerMs},
       {"dump", dump->name},
       {"confirmed", dump->is_confirmed ? 1 : 0},
       {"stored", dump->is_stored ? 1 : 0}});
  if (!suspicion.rule->run.empty()) options_.run(suspicion.rule->run, *dump);
  return true;
}

std::map<std::string, int64_t> HangDesk::Counters() const {
  std::lock_guard lock(mutex_);
  return {{"hang_dumps", dumps_},
          {"hang_dumps_failed", failed_},
          {"hang_dumps_lost", lost_},
          {"hang_dumps_deferred", queue_.deferred()},
          {"hang_dumps_waiting", static_cast<int64_t>(queue_.waiting())},
          {"hangs_over_before_dump", queue_.over_before_dump()},
          {"hangs_in_cooldown", in_cooldown_},
          {"hangs_unconfirmed", unconfirmed_}};
}

}  // namespace stackd
