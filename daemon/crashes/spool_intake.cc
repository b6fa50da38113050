#include "daemon/crashes/spool_intake.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/base/text.h"
#include "daemon/crashes/crash_capture.h"
#include "daemon/crashes/find_modules.h"
#include "daemon/log/log.h"
#include "daemon/process/process_description.h"
#include "daemon/ring/recording.h"

namespace stackd {
namespace {

constexpr std::chrono::seconds kRest(5);
// A process that ends closes its files one after the other.
constexpr std::chrono::milliseconds kSoon(200);
// Crashes that the store did not take, before the rest waits for the next round.
constexpr int kMaxNotStored = 8;
// Refused files of one round that are named in the log: one user's garbage must not fill it.
constexpr size_t kMaxNamed = 16;
// In which many that end at once are seen to together.
constexpr std::chrono::milliseconds kGather(20);

// The process as the daemon knew it, if the file is one that the daemon gave out; nullopt if it claims to be another. In a
// folder that is open to others a name is the daemon's only on a file that is.
std::optional<ProcessDescription> ProcessOf(const std::string& name, uid_t file_uid, const stackd_hello& hello) {
  std::string claimed = std::to_string(hello.pid) + "-" + std::to_string(hello.start_ticks);
  auto owner = Spool::OwnerOf(name);
  if (!owner || file_uid != geteuid()) return DescribeProcess(hello, file_uid, claimed);
  bool is_owner = owner->process_id == claimed || owner->process_id.starts_with(claimed + "-");
  if (!is_owner) return std::nullopt;
  return DescribeProcess(hello, owner->uid, owner->process_id);
}

std::shared_ptr<Capture> ToCapture(ProcessDescription process, SpoolCrash crash, ModuleCache* modules) {
  auto capture = std::make_shared<Capture>();
  capture->process = std::move(process);
  capture->process.thread_count = 1;
  capture->trigger = Trigger::kCrash;
  capture->begin_wall_ns = crash.wall_ns;
  capture->dump_signal = crash.process.dump_signal;
  capture->partial = true;
  capture->crash = ToCrashCapture(crash.record);
  capture->crash->from_spool = true;
  CollectorCounters unused;
  Recording recording(0, &unused);
  AddCrashedThread(std::move(crash.record), &recording, capture.get());
  recording.AddNotes(&capture->notes);
  capture->threads = recording.TakeThreads();
  std::vector<Mapping> mappings = ParseMaps(crash.maps);
  for (Mapping& mapping : mappings) mapping.path = ToValidUtf8(mapping.path);
  FindModules(crash.images, modules, &mappings, &capture->notes);
  capture->map = std::make_shared<const AddressMap>(std::move(mappings));
  return capture;
}

}  // namespace

SpoolFinding LookAtSpoolFile(const Spool& spool, const std::string& name, ModuleCache* modules) {
  using Kind = SpoolFinding::Kind;
  auto file = spool.Read(name);
  if (!file) {
    if (file.error().code == Code::kNotFound) return {Kind::kGone};
    if (file.error().code == Code::kUnavailable) return {.kind = Kind::kUnreadable, .reason = file.error().message};
    return {.kind = Kind::kRefused, .reason = file.error().message};
  }
  if (file->bytes.empty()) return {file->in_use ? Kind::kUnfinished : Kind::kNothing};
  auto crash = ParseSpoolFile(file->bytes);
  if (!crash) {
    // What is not finished may be so later; what makes no sense will not.
    if (crash.error().code == Code::kUnavailable && file->in_use) return {Kind::kUnfinished};
    return {.kind = Kind::kRefused, .reason = crash.error().message, .readable = true};
  }
  auto process = ProcessOf(name, file->uid, crash->process);
  if (!process) return {.kind = Kind::kRefused, .reason = "it claims to be of another process", .readable = true};
  return {Kind::kCrash, ToCapture(std::move(*process), std::move(*crash), modules)};
}

SpoolIntake::SpoolIntake(const Spool* spool, const Quarantine* quarantine, ModuleCache* modules,
                         CollectorCounters* counters)
    : spool_(spool), quarantine_(quarantine), modules_(modules), counters_(counters) {}

SpoolIntake::~SpoolIntake() { Stop(); }

void SpoolIntake::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void SpoolIntake::Hold(const std::string& name) {
  std::lock_guard lock(mutex_);
  held_.insert(name);
}

void SpoolIntake::LetGo(const std::string& name) {
  std::lock_guard lock(mutex_);
  held_.erase(name);
  asked_ = true;
  changed_.notify_all();
}

bool SpoolIntake::HasCrash(const std::string& name, const CrashId& id) const {
  auto file = spool_->Read(name);
  if (!file) return false;
  auto crash = ParseSpoolFile(file->bytes);
  return crash && std::ranges::equal(crash->record.id, id) && ProcessOf(name, file->uid, crash->process);
}

bool SpoolIntake::IsHeld(const std::string& name) {
  std::lock_guard lock(mutex_);
  return held_.contains(name);
}

void SpoolIntake::Start(CrashHandler handler) {
  handler_ = std::move(handler);
  thread_ = std::thread([this] { Run(); });
}

void SpoolIntake::Run() {
  std::unique_lock lock(mutex_);
  std::chrono::milliseconds rest = kRest;
  while (!stopping_) {
    changed_.wait_for(lock, rest, [this] { return stopping_ || asked_; });
    if (stopping_) return;
    asked_ = false;
    changed_.wait_for(lock, kGather, [this] { return stopping_; });
    lock.unlock();
    bool soon = TakeAll();
    // A process that is slow to end is waited for less and less often.
    rest = !soon ? kRest : rest == kRest ? kSoon : std::min<std::chrono::milliseconds>(kRest, 2 * rest);
    lock.lock();
  }
}

bool SpoolIntake::TakeAll() {
  bool soon = false;
  int not_stored = 0;
  refused_ = 0;
  unreadable_before_ = std::exchange(unreadable_, {});
  LoopWatch::Turn turn(Loop::kSpool);
  for (const std::string& name : spool_->Names()) {
    turn.Beat();
    Outcome outcome = Attempt(name);
    soon |= outcome == Outcome::kLookAgainSoon;
    // A full disk need be logged only a few times.
    if (outcome == Outcome::kNotStored && ++not_stored == kMaxNotStored) break;
  }
  if (refused_ > 0) spool_->RemoveOldSetAside();
  if (refused_ > kMaxNamed) {
    Log(LogLevel::kWarning, "more files of the spool are no crashes that can be taken in",
        {{"count", static_cast<int64_t>(refused_ - kMaxNamed)}});
  }
  return soon;
}

SpoolIntake::Outcome SpoolIntake::Attempt(const std::string& name) {
  if (quarantine_ == nullptr || IsHeld(name) || IsEnding()) return Take(name);
  const int attempts = quarantine_->Attempts(name);
  if (attempts >= Quarantine::kMaxAttempts) {
    const std::string kept = spool_->MoveTo(*quarantine_, name);
    counters_->spool_set_aside++;
    Log(LogLevel::kWarning, "a file of the spool ended stackd more than once: it is set aside and not tried again",
        {{"file", name}, {"kept", kept.empty() ? "no" : kept}});
    return Outcome::kDone;
  }
  const bool is_careful = attempts >= Quarantine::kCarefulAttempts;
  if (is_careful && MonotonicNs() - start_ns_ < Quarantine::kLastAttemptAfterNs) return Outcome::kLookAgainSoon;
  {
    std::lock_guard lock(mutex_);
    attempted_ = name;
  }
  quarantine_->Begin(name);
  const Outcome outcome = Take(name);
  std::lock_guard lock(mutex_);
  attempted_.clear();
  quarantine_->End(name);
  return outcome;
}

void SpoolIntake::EndAttempts() {
  std::lock_guard lock(mutex_);
  ending_ = true;
  if (!attempted_.empty()) quarantine_->End(attempted_);
}

bool SpoolIntake::IsEnding() {
  std::lock_guard lock(mutex_);
  return ending_;
}

SpoolIntake::Outcome SpoolIntake::Take(const std::string& name) {
  if (IsHeld(name)) {
    if (!spool_->CutIfTooLarge(name)) return Outcome::kDone;
    counters_->spool_refused++;
    Log(LogLevel::kWarning, "a process wrote more to its spool file than a crash can have", {{"file", name}});
    return Outcome::kDone;
  }
  SpoolFinding finding = LookAtSpoolFile(*spool_, name, modules_);
  switch (finding.kind) {
    case SpoolFinding::Kind::kGone:
      return Outcome::kDone;
    case SpoolFinding::Kind::kUnfinished:
      return Outcome::kLookAgainSoon;
    case SpoolFinding::Kind::kNothing:
      spool_->Remove(name);
      return Outcome::kDone;
    case SpoolFinding::Kind::kRefused:
      Refuse(name, finding);
      return Outcome::kDone;
    case SpoolFinding::Kind::kUnreadable:
      LeaveUnreadable(name, finding.reason);
      return Outcome::kDone;
    case SpoolFinding::Kind::kCrash:
      bool stored = false;
      handler_(std::move(finding.capture), [&] {
        stored = true;
        counters_->spool_taken++;
        spool_->Remove(name);
      });
      return stored ? Outcome::kDone : Outcome::kNotStored;
  }
  return Outcome::kDone;
}

void SpoolIntake::Refuse(const std::string& name, const SpoolFinding& finding) {
  counters_->spool_refused++;
  if (++refused_ <= kMaxNamed) {
    Log(LogLevel::kWarning, "a file of the spool is no crash that can be taken in",
        {{"file", name}, {"reason", finding.reason}, {"kept", finding.readable ? "as .bad" : "no"}});
  }
  finding.readable ? spool_->SetAside(name) : spool_->Remove(name);
}

// What this user may not read another may, and what cannot be read now can be read later.
void SpoolIntake::LeaveUnreadable(const std::string& name, const std::string& reason) {
  unreadable_.insert(name);
  if (unreadable_before_.contains(name)) return;
  counters_->spool_refused++;
  if (unreadable_.size() > kMaxNamed) return;
  Log(LogLevel::kWarning, "a file of the spool cannot be read: it stays there", {{"file", name}, {"reason", reason}});
}

HeldSpoolFile::HeldSpoolFile(const std::shared_ptr<SpoolIntake>& intake, std::string name)
    : intake_(intake), name_(std::move(name)) {
  intake->Hold(name_);
}

HeldSpoolFile::~HeldSpoolFile() {
  if (auto alive = intake_.lock()) alive->LetGo(name_);
}

bool HeldSpoolFile::HasCrash(const CrashId& id) const {
  auto alive = intake_.lock();
  return alive != nullptr && alive->HasCrash(name_, id);
}

}  // namespace stackd
