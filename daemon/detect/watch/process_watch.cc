#include "daemon/detect/watch/process_watch.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <span>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/detect/watch/words.h"

namespace stackd {
namespace {

constexpr int64_t kHeartbeatsNs = 200 * kNsPerMs;
// For a process without heartbeats: it may register one.
constexpr int64_t kNoHeartbeatsNs = 500 * kNsPerMs;
// A process that left a question without an answer, frozen or not, is asked again after this time. If it is silent again,
// the rest is twice as long, then four times.
constexpr int64_t kRestNs = 10 * kNsPerSecond;
constexpr int kMaxRestDoublings = 2;
constexpr int kMaxLookDoublings = 4;
// What was seen so long ago says whether a thread has run lately.
constexpr int64_t kSeenNs = kNsPerSecond;

constexpr int64_t kThreadsNs = 2 * kNsPerSecond;
// For a process in which nothing has run since the last look: what begins now is still found in 10 s.
constexpr int64_t kStillThreadsNs = 5 * kNsPerSecond;
// To confirm what the last look has seen.
constexpr int64_t kSoonNs = kNsPerSecond;
constexpr int64_t kMaxThreadsNs = 30 * kNsPerSecond;

constexpr int64_t kSampleNs = 4 * kNsPerSecond;
constexpr int64_t kMaxSampleNs = 30 * kNsPerSecond;
constexpr int64_t kSampleTimeoutNs = 300 * kNsPerMs;
// What a look costs, times this, is the least time to the next: 0.1 % of a core.
constexpr int64_t kLookFactor = 1000;
// A thread costs the process this much: its helper opens a file of procfs.
constexpr int64_t kHelperNsPerThread = 6'000;
// Likewise to confirm what the last look has seen, 1 %.
constexpr int64_t kSoonFactor = 100;
// As kLookFactor for samples, which are needed only where threads wait in new places.
constexpr int64_t kSampleFactor = 500;

// SIGTERM is looked for so often, by how soon it must be seen.
constexpr int64_t kMinSigtermNs = 250 * kNsPerMs;
constexpr int64_t kMaxSigtermNs = 2 * kNsPerSecond;
// For a process whose memory cannot be read: the look may have taken a while.
constexpr int64_t kSlowSigtermNs = 5 * kNsPerSecond;

// Waits for what keeps no owner are looked into after this time, in so many threads.
constexpr int64_t kInferNs = 2 * kNsPerSecond;
constexpr int kMaxAskedToInfer = 4;
constexpr int kMaxTriesToInfer = 3;

constexpr size_t kEdgesInWords = 4;

std::string Hex(uint64_t value) {
  char text[32];
  snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string Thread(int32_t tid) { return "thread " + std::to_string(tid); }

const char* InWords(char state) {
  switch (state) {
    case 'R':
      return "runs, or waits for a core";
    case 'S':
      return "sleeps";
    case 'D':
      return "sleeps in the kernel and cannot be woken";
    case 0:
      return "is gone, or cannot be seen";
  }
  return "does not run";
}

std::string InWords(const Deadlock& deadlock) {
  const auto& edges = deadlock.edges;
  if (edges.size() == 1) return Thread(edges[0].waiter_tid) + " waits for a lock that it holds itself";
  std::string text = std::to_string(edges.size()) + " threads wait for each other in a circle: ";
  for (size_t i = 0; i < edges.size(); ++i) {
    if (i == kEdgesInWords) return text + " and " + std::to_string(edges.size() - kEdgesInWords) + " more";
    text += (i == 0 ? "" : ", ") + Thread(edges[i].waiter_tid);
  }
  return text;
}

std::string InWords(const LockWait& lock) {
  const std::string text = Thread(lock.waiter_tid) + " waits for the lock " + Hex(lock.lock_avma) + ", which ";
  if (lock.owner_tid == 0) return text + "readers hold";
  return text + Thread(lock.owner_tid) + (lock.owner_is_gone ? ", which has ended, held" : " holds");
}

// Whether the thread waits for a signal handler, which hardly brings work.
bool IsInPause(const ThreadWatch::Thread& thread) {
  return thread.wait && thread.wait->call &&
         (thread.wait->call->number == SYS_pause || thread.wait->call->number == SYS_rt_sigsuspend);
}

// The last lock of the chain of owners that begins with `lock`.
const LockWait& EndOfChain(const LockWait& lock, const LockView& view) {
  const LockWait* last = &lock;
  for (size_t steps = 0; steps <= view.locks.size() && !last->owner_is_gone; ++steps) {
    const auto next = std::ranges::find(view.locks, last->owner_tid, &LockWait::waiter_tid);
    if (next == view.locks.end()) break;
    last = &*next;
  }
  return *last;
}

}  // namespace

ProcessWatch::ProcessWatch(ProcessProbe* probe, const Rules* rules, DetectCounters* counters, Report report)
    : probe_(probe), rules_(rules), counters_(counters), report_(std::move(report)) {}

ProcessWatch::~ProcessWatch() {
  EndHeartbeats();
  EndSuspicionsOfThreads();
  if (survival_ != nullptr) survival_->over = true;
}

void ProcessWatch::SetDescription(ProcessDescription description) {
  const bool is_new = description_.id.empty();
  if (!is_new && description_.display_name == description.display_name) return;
  description_ = std::move(description);
  for (size_t i = 0; i < kRuleTriggers; ++i) {
    rule_for_[i] = FindRule(*rules_, static_cast<RuleTrigger>(i), description_);
  }
}

const std::shared_ptr<const Rule>& ProcessWatch::RuleFor(RuleTrigger trigger) const {
  return rule_for_[static_cast<size_t>(trigger)];
}

bool ProcessWatch::IsStopped(int32_t tid) const {
  const char state = probe_->StateOf(description_.id, tid);
  return state == 'T' || state == 't';
}

// A process whose cgroup is frozen says that it sleeps. Its helper would run for a sample.
ProcessWatch::Frozen ProcessWatch::AskWhetherFrozen(int64_t now_ns, const std::function<bool()>& may_ask) {
  if (asked_ns_ == now_ns) return answer_;
  if (now_ns < rests_until_ns_) return answer_ == Frozen::kYes ? answer_ : SeeWhetherFrozen(now_ns);
  if (!may_ask()) return Frozen::kNotKnown;
  asked_ns_ = now_ns;
  const auto before = probe_->ReadProcessMotion(description_.id);
  const auto waits = probe_->SampleWaits(description_.id, kSampleTimeoutNs);
  if (waits) {
    unanswered_ = 0;
    return answer_ = Frozen::kNo;
  }
  // A dump went first.
  if (waits.error().code == Code::kAborted) return answer_ = Frozen::kNotKnown;
  auto after = probe_->ReadProcessMotion(description_.id);
  answer_ = after.empty() || before.empty() ? Frozen::kNotKnown : before != after ? Frozen::kNo : Frozen::kYes;
  rests_until_ns_ = now_ns + (kRestNs << std::min(unanswered_++, kMaxRestDoublings));
  seen_motion_ = std::move(after);
  seen_ns_ = now_ns;
  return answer_;
}

ProcessWatch::Frozen ProcessWatch::SeeWhetherFrozen(int64_t now_ns) {
  auto motion = probe_->ReadProcessMotion(description_.id);
  if (motion.empty()) return Frozen::kNotKnown;
  const auto before = std::exchange(seen_motion_, std::move(motion));
  const int64_t elapsed_ns = now_ns - std::exchange(seen_ns_, now_ns);
  const bool has_run = !before.empty() && before != seen_motion_;
  return elapsed_ns <= kSeenNs && has_run ? Frozen::kNo : Frozen::kNotKnown;
}

SharedSuspicion ProcessWatch::Suspect(HangCapture hang, std::string subject, RuleTrigger trigger, int64_t now_ns,
                                      bool is_inferred) {
  auto suspicion = std::make_shared<Suspicion>();
  suspicion->process_id = description_.id;
  suspicion->process_name = description_.display_name;
  suspicion->subject = std::move(subject);
  suspicion->hang = std::move(hang);
  suspicion->rule = RuleFor(trigger);
  suspicion->hang.rule = suspicion->rule->name;
  suspicion->seen_ns = now_ns;
  suspicion->is_inferred = is_inferred;
  report_(suspicion);
  return suspicion;
}

HeartbeatWatch::Verdict ProcessWatch::Judge(const Heartbeat& heartbeat, int64_t now_ns,
                                            const std::function<bool()>& may_ask) {
  if (IsStopped(0) || IsStopped(heartbeat.tid)) return HeartbeatWatch::Verdict::kExcused;
  switch (AskWhetherFrozen(now_ns, may_ask)) {
    case Frozen::kNo:
      return HeartbeatWatch::Verdict::kMissed;
    case Frozen::kYes:
      return HeartbeatWatch::Verdict::kExcused;
    case Frozen::kNotKnown:
      return HeartbeatWatch::Verdict::kNotKnown;
  }
  return HeartbeatWatch::Verdict::kNotKnown;
}

void ProcessWatch::EndHeartbeats() {
  for (const auto& [cell, suspicion] : missed_) suspicion->over = true;
  missed_.clear();
  heartbeats_ = {};
  heartbeats_looked_ns_ = 0;
}

void ProcessWatch::LookAtHeartbeats(int64_t now_ns, const std::function<bool()>& may_ask) {
  heartbeats_due_ns_ = now_ns + kNoHeartbeatsNs;
  // The process may have had another name, and a rule with it.
  if (RuleFor(RuleTrigger::kHeartbeat) == nullptr) return EndHeartbeats();
  const auto heartbeats = probe_->Heartbeats(description_.id);
  if (!heartbeats) return;
  const auto judge = [&](const Heartbeat& heartbeat) {
    const auto verdict = Judge(heartbeat, now_ns, may_ask);
    if (verdict == HeartbeatWatch::Verdict::kExcused) ++counters_->stopped;
    return verdict;
  };
  const int64_t elapsed_ns = heartbeats_looked_ns_ == 0 ? 0 : now_ns - heartbeats_looked_ns_;
  const HeartbeatWatch::Events events = heartbeats_.Look(*heartbeats, elapsed_ns, judge);
  heartbeats_looked_ns_ = now_ns;
  if (events.have_beaten) counters_->last_beat_wall_ns = WallNs();
  if (!heartbeats_.empty()) heartbeats_due_ns_ = now_ns + kHeartbeatsNs;
  for (const Heartbeat& resumed : events.resumed) {
    auto suspicion = missed_.extract(resumed.cell);
    if (!suspicion.empty()) suspicion.mapped()->over = true;
  }
  for (const auto& [heartbeat, age_ns] : events.missed) {
    ++counters_->heartbeats_missed;
    HangCapture hang{.cause = HangCause::kHeartbeatMissed,
                     .explanation = "the heartbeat \"" + heartbeat.name + "\" has not come for " + DurationInWords(age_ns) +
                                    "; its limit is " + DurationInWords(heartbeat.limit_ns) + "; its " +
                                    Thread(heartbeat.tid) + " " + InWords(probe_->StateOf(description_.id, heartbeat.tid)),
                     .tid = heartbeat.tid,
                     .heartbeat = heartbeat.name,
                     .duration_ns = age_ns};
    std::string subject = "heartbeat " + heartbeat.name + " " + std::to_string(heartbeat.cell);
    missed_[heartbeat.cell] = Suspect(std::move(hang), std::move(subject), RuleTrigger::kHeartbeat, now_ns);
  }
}

void ProcessWatch::LookAtSigterm(int64_t now_ns, int64_t stretch) {
  const auto& rule = RuleFor(RuleTrigger::kNotGone);
  sigterm_due_ns_ = now_ns + kMaxThreadsNs;
  if (rule == nullptr) return;
  ++counters_->sigterm_looks;
  const auto signs = probe_->ReadSigtermSigns(description_.id);
  const bool is_slow = signs && !signs->taken_count;
  const int64_t rest_ns = std::clamp(rule->after_ns / 8, kMinSigtermNs, kMaxSigtermNs) * stretch;
  sigterm_due_ns_ = now_ns + (is_slow ? std::max(rest_ns, kSlowSigtermNs) : rest_ns);
  if (!signs) return;
  const auto survivor = sigterm_.Look(*signs, now_ns, rule->after_ns);
  if (!survivor) return;
  ++counters_->not_gone;
  const int64_t duration_ns = now_ns - survivor->since_ns;
  HangCapture hang{.cause = HangCause::kNotGone,
                   .explanation = "SIGTERM came " + DurationInWords(duration_ns) +
                                  " ago, and the process is still there; " +
                                  (survivor->has_taken ? "it has taken the signal" : "it has not even taken the signal"),
                   .duration_ns = duration_ns};
  survival_ = Suspect(std::move(hang), "not_gone", RuleTrigger::kNotGone, now_ns);
}

bool ProcessWatch::MaySample(int64_t now_ns) const {
  int64_t rest_ns = kSampleNs;
  const auto helper = threads_.threads().find(threads_.helper_tid());
  if (helper != threads_.threads().end()) {
    const int64_t cost_ns = helper->second.motion.run_ns - helper_ran_before_ns_;
    rest_ns = std::clamp(cost_ns, kSampleNs / kSampleFactor, kMaxSampleNs / kSampleFactor) * kSampleFactor;
  }
  // A process that does not answer is asked less and less often.
  rest_ns = std::max(rest_ns, kSampleNs << std::min(failed_samples_, 4));
  return sampled_ns_ == 0 || now_ns - sampled_ns_ >= rest_ns;
}

void ProcessWatch::Sample(int64_t now_ns) {
  const auto helper = threads_.threads().find(threads_.helper_tid());
  if (helper != threads_.threads().end()) helper_ran_before_ns_ = helper->second.motion.run_ns;
  sampled_ns_ = now_ns;
  const auto waits = IsStopped(0) ? std::unexpected(Status{Code::kUnavailable, "stopped"})
                                  : probe_->SampleWaits(description_.id, kSampleTimeoutNs);
  if (!waits) {
    ++counters_->samples_failed;
    // The process is not to blame if a dump goes first.
    if (waits.error().code != Code::kAborted) ++failed_samples_;
    return;
  }
  ++counters_->samples;
  failed_samples_ = 0;
  threads_.Learn(*waits, now_ns);
  has_new_waits_ = true;
}

LockView ProcessWatch::ViewLocksNow() {
  const std::vector<FutexWait> waits = FutexesOf(threads_);
  if (waits.empty()) return {};
  const auto futexes = probe_->ReadFutexes(description_.id, waits);
  return futexes ? ViewLocks(threads_, *futexes) : LockView{};
}

bool ProcessWatch::StandsStill(int64_t now_ns) const {
  const auto& rule = RuleFor(RuleTrigger::kNoProgress);
  return rule != nullptr && now_ns - threads_.StillSinceNs() >= rule->after_ns;
}

bool ProcessWatch::NeedsLocks(int64_t now_ns) {
  if (has_new_waits_ || deadlocks_.HasCandidates() || spins_.IsSampling() || !ownerless_is_judged_) return true;
  if (runtime_circles_.HasUnproven()) return true;
  if (StandsStill(now_ns) && !standstill_is_judged_) return true;
  const auto& spin = RuleFor(RuleTrigger::kSpin);
  return spin != nullptr && std::ranges::any_of(threads_.threads(), [&](const auto& entry) {
           return entry.second.busy_since_ns != 0 && now_ns - entry.second.busy_since_ns >= spin->after_ns;
         });
}

void ProcessWatch::LookAtThreads(int64_t now_ns, const std::function<int64_t()>& cpu_clock, int64_t stretch) {
  const bool is_wanted = RuleFor(RuleTrigger::kDeadlock) != nullptr || RuleFor(RuleTrigger::kSpin) != nullptr ||
                         RuleFor(RuleTrigger::kNoProgress) != nullptr;
  threads_due_ns_ = now_ns + kMaxThreadsNs;
  // The process may have had another name, and a rule with it.
  if (!is_wanted) return EndSuspicionsOfThreads();
  const int64_t begin_cpu_ns = cpu_clock();
  const auto motions = probe_->ReadMotion(description_.id);
  if (!motions) {
    // A dump went first, its agent is about to begin, or it had no processor in time.
    const int64_t rest_ns = std::min(kThreadsNs << std::min(failed_looks_++, kMaxLookDoublings), kMaxThreadsNs);
    threads_due_ns_ = now_ns + (motions.error().code == Code::kAborted ? kSoonNs : rest_ns);
    return;
  }
  failed_looks_ = 0;
  ++counters_->motion_looks;
  threads_.Update(*motions, now_ns, disturbed_looks_ > 0, std::exchange(captures_, 0));
  if (disturbed_looks_ > 0) --disturbed_looks_;
  EndDeadlocksThatMoved();
  if (threads_.NeedsSample(now_ns) && MaySample(now_ns)) Sample(now_ns);
  if (!StandsStill(now_ns)) {
    standstill_is_judged_ = false;
    if (auto over = std::exchange(standstill_, nullptr)) over->over = true;
  }
  if (NeedsLocks(now_ns)) {
    const LockView view = ViewLocksNow();
    has_new_waits_ = false;
    SuspectDeadlocks(view, now_ns);
    SuspectInRuntimes(view, now_ns);
    // A process that does not answer would not say where its threads are either, and take as long again.
    if (failed_samples_ == 0) SuspectSpin(view, now_ns);
    if (failed_samples_ == 0) SuspectInferred(view, now_ns);
    SuspectStandstill(view, now_ns);
  }
  const int64_t helper_cost_ns = static_cast<int64_t>(motions->size()) * kHelperNsPerThread;
  threads_due_ns_ = NextThreadsLookNs(now_ns, cpu_clock() - begin_cpu_ns + helper_cost_ns, stretch);
}

int64_t ProcessWatch::NextThreadsLookNs(int64_t now_ns, int64_t cost_ns, int64_t stretch) {
  if (deadlocks_.HasCandidates() || spins_.IsSampling() || !ownerless_is_judged_ || runtime_circles_.HasUnproven()) {
    return now_ns + std::min(std::max(kSoonNs, cost_ns * kSoonFactor), kMaxThreadsNs);
  }
  const bool is_still = threads_.StillSinceNs() < now_ns && !threads_.NeedsSample(now_ns);
  const int64_t interval_ns = std::max(is_still ? kStillThreadsNs : kThreadsNs, cost_ns * kLookFactor);
  return now_ns + std::min(interval_ns * stretch, kMaxThreadsNs);
}

// Ends a deadlock if one of its threads does something else: a signal or a timer of the program let that thread out.
void ProcessWatch::EndDeadlocksThatMoved() {
  std::erase_if(known_deadlocks_, [this](const auto& entry) {
    const KnownDeadlock& known = entry.second;
    const bool is_over = std::ranges::any_of(known.deadlock.edges, [&](const WaitEdge& edge) {
      const auto thread = threads_.threads().find(edge.waiter_tid);
      return thread == threads_.threads().end() ||
             (!thread->second.before && thread->second.unmoved_since_ns > known.found_ns);
    });
    if (is_over) known.suspicion->over = true;
    return is_over;
  });
}

void ProcessWatch::EndSuspicionsOfThreads() {
  for (const auto& [key, known] : known_deadlocks_) known.suspicion->over = true;
  known_deadlocks_.clear();
  if (const auto over = std::exchange(standstill_, nullptr)) over->over = true;
  if (const auto over = std::exchange(inferred_, nullptr)) over->over = true;
  runtime_circles_.End();
}

void ProcessWatch::SuspectDeadlocks(const LockView& view, int64_t now_ns) {
  if (RuleFor(RuleTrigger::kDeadlock) == nullptr) return;
  for (Deadlock& deadlock : deadlocks_.Look(view, threads_, now_ns)) {
    if (known_deadlocks_.contains(deadlock.key)) continue;
    ++counters_->deadlocks;
    HangCapture hang{.cause = HangCause::kDeadlock,
                     .explanation = InWords(deadlock),
                     .tid = deadlock.edges[0].waiter_tid,
                     .duration_ns = now_ns - deadlock.since_ns};
    auto suspicion = Suspect(std::move(hang), "deadlock " + deadlock.key, RuleTrigger::kDeadlock, now_ns);
    std::string key = deadlock.key;
    known_deadlocks_.emplace(std::move(key), KnownDeadlock{std::move(deadlock), now_ns, std::move(suspicion)});
  }
}

void ProcessWatch::SuspectInRuntimes(const LockView& view, int64_t now_ns) {
  if (RuleFor(RuleTrigger::kDeadlock) == nullptr) return;
  std::vector<ThreadWait> sleeping;
  for (const auto& [tid, thread] : threads_.threads()) {
    if (thread.wait) sleeping.push_back(*thread.wait);
  }
  const auto waits = probe_->ReadLockWaits(description_.id, sleeping);
  if (!waits) return;
  runtime_circles_.Look(view, *waits, threads_, now_ns);
  for (RuntimeCircles::Circle* circle : runtime_circles_.Unproven()) {
    ++circle->tries;
    const auto found = probe_->FindCircle(description_.id);
    if (!found || !*found) continue;
    const auto& [explanation, tids, owner_is_unknown] = **found;
    if (owner_is_unknown) continue;  // of another lock
    if (std::ranges::none_of(tids, [&](int32_t tid) { return circle->tids.contains(tid); })) continue;
    ++counters_->deadlocks;
    HangCapture hang{.cause = HangCause::kDeadlock,
                     .explanation = explanation,
                     .tid = tids[0],
                     .duration_ns = now_ns - circle->since_ns};
    circle->suspicion = Suspect(std::move(hang), "deadlock " + std::to_string(tids[0]), RuleTrigger::kDeadlock, now_ns);
  }
}

// nullopt: it did not say.
std::optional<bool> ProcessWatch::WaitsForWhatKeepsNoOwner(int32_t tid) {
  // Functions of initializers (not FnOnce::call_once, which begins each thread of Rust's) and of locks.
  constexpr std::string_view kFunctions[] = {"pthread_once",        "cxa_guard_acquire", "std::call_once",
                                             "::Once::call",        "::Once>::call",     "lll_lock_wait_private",
                                             "::lock_contended",    "::read_contended",  "::write_contended",
                                             "RawMutex::lock_slow", "RawRwLock::lock_"};
  const auto functions = probe_->FunctionsOf(description_.id, tid);
  if (!functions) return std::nullopt;
  return std::ranges::any_of(*functions, [&](const std::string& function) {
    return std::ranges::any_of(kFunctions, [&](std::string_view name) { return function.find(name) != function.npos; });
  });
}

void ProcessWatch::EndInferredThatMoved() {
  if (inferred_ == nullptr) return;
  const bool is_over = std::ranges::any_of(inferred_waits_, [this](const auto& wait) {
    const auto thread = threads_.threads().find(wait.first);
    if (thread == threads_.threads().end()) return true;
    const auto& now = thread->second.wait;
    return now && (!now->call || WaitedFutex(*now->call) != wait.second);
  });
  if (is_over) std::exchange(inferred_, nullptr)->over = true;
}

void ProcessWatch::SuspectInferred(const LockView& view, int64_t now_ns) {
  if (RuleFor(RuleTrigger::kDeadlock) == nullptr) return;
  EndInferredThatMoved();
  if (view.ownerless != ownerless_) {
    ownerless_ = view.ownerless;
    ownerless_since_ns_ = now_ns;
    ownerless_is_judged_ =
        std::ranges::none_of(ownerless_, [this](const auto& wait) { return ownerless_tries_[wait] < kMaxTriesToInfer; });
  }
  if (ownerless_is_judged_ || now_ns - ownerless_since_ns_ < kInferNs) return;
  ownerless_is_judged_ = true;
  if (!known_deadlocks_.empty() || inferred_ != nullptr) return;
  std::set<int32_t> still;
  for (const auto& [tid, thread] : threads_.threads()) {
    if (thread.HasWaitedSince(ownerless_since_ns_)) still.insert(tid);
  }
  std::erase_if(ownerless_tries_, [this](const auto& tries) { return !threads_.threads().contains(tries.first.first); });
  bool may_be = false;
  int asked = 0;
  for (const auto& wait : ownerless_) {
    int& tries = ownerless_tries_[wait];
    if (may_be || tries >= kMaxTriesToInfer || !still.contains(wait.first) || asked++ == kMaxAskedToInfer) continue;
    const auto waits = WaitsForWhatKeepsNoOwner(wait.first);
    tries = waits ? kMaxTriesToInfer : tries + 1;
    may_be = waits.value_or(false);
    if (may_be) ReportCircle(wait, still, now_ns);
    if (tries == kMaxTriesToInfer) continue;
    ownerless_is_judged_ = false;
    ownerless_since_ns_ = now_ns;
  }
}

void ProcessWatch::ReportCircle(const std::pair<const int32_t, uint64_t>& wait, const std::set<int32_t>& still,
                                int64_t now_ns) {
  const auto circle = probe_->FindCircle(description_.id);
  // Another time there may be an answer.
  if (!circle) ownerless_tries_[wait] = kMaxTriesToInfer - 1;
  if (!circle || !*circle) return;
  const auto& [explanation, tids, owner_is_unknown] = **circle;
  if (tids.empty() || !std::ranges::all_of(tids, [&](int32_t tid) { return still.contains(tid); })) return;
  ++counters_->deadlocks;
  HangCapture hang{.cause = HangCause::kDeadlock,
                   .explanation = explanation + " (inferred from the stacks)",
                   .tid = tids[0],
                   .duration_ns = now_ns - ownerless_since_ns_};
  inferred_waits_ = {wait};
  inferred_ = Suspect(std::move(hang), "inferred " + std::to_string(tids[0]), RuleTrigger::kDeadlock, now_ns,
                      /*is_inferred=*/true);
}

void ProcessWatch::SuspectSpin(const LockView& view, int64_t now_ns) {
  const auto& rule = RuleFor(RuleTrigger::kSpin);
  if (rule == nullptr) return;
  const auto functions_of = [this](int32_t tid) -> std::optional<std::vector<std::string>> {
    auto functions = probe_->FunctionsOf(description_.id, tid);
    if (!functions) return std::nullopt;
    return std::move(*functions);
  };
  const auto spin = spins_.Look(view, threads_, now_ns, rule->after_ns, functions_of);
  if (!spin) return;
  ++counters_->spins;
  HangCapture hang{.cause = HangCause::kSpin,
                   .explanation = Thread(spin->tid) + " has used a core for " + DurationInWords(spin->duration_ns) +
                                  " and stays in " + spin->function + ", and " + InWords(spin->kept_waiting),
                   .tid = spin->tid,
                   .duration_ns = spin->duration_ns,
                   .loop_function = spin->function};
  Suspect(std::move(hang), "spin " + std::to_string(spin->tid), RuleTrigger::kSpin, now_ns);
}

std::optional<std::map<int32_t, WaitEnd>> ProcessWatch::WaitEnds(const LockView& view) {
  std::vector<int32_t> numbers;
  for (const auto& [tid, thread] : threads_.threads()) {
    const int32_t fd = thread.wait && thread.wait->call ? DecidingFd(*thread.wait->call) : -1;
    if (fd >= 0) numbers.push_back(fd);
  }
  std::vector<WaitedFd> fds;
  if (!numbers.empty()) {
    auto described = probe_->DescribeFds(description_.id, numbers, kSampleTimeoutNs);
    if (!described) return std::nullopt;
    fds = std::move(*described);
  }
  std::map<int32_t, WaitEnd> ends;
  for (const auto& [tid, thread] : threads_.threads()) {
    if (!thread.wait) continue;
    // A thread that is in no call waits for a page.
    const WaitEnd end = thread.wait->call ? WaitEndOf(*thread.wait->call, fds) : WaitEnd::kOwed;
    ends.emplace(tid, view.shared_waiters.contains(tid) ? WaitEnd::kOutside : end);
  }
  return ends;
}

const LockWait* ProcessWatch::FindStuck(const LockView& view, const std::map<int32_t, WaitEnd>& ends) const {
  // Work from outside may come through such a thread, and reach the one that has the lock.
  const bool gets_work = std::ranges::any_of(ends, [this](const auto& end) {
    return end.second == WaitEnd::kOutside && !IsInPause(threads_.threads().at(end.first));
  });
  for (const LockWait& lock : view.locks) {
    const LockWait& last = EndOfChain(lock, view);
    const auto end = ends.find(last.owner_tid);
    const bool is_circle = std::ranges::find(view.locks, last.owner_tid, &LockWait::waiter_tid) != view.locks.end();
    if (end == ends.end() || end->second == WaitEnd::kOwed || is_circle) return &last;
    if (end->second == WaitEnd::kInside && !gets_work) return &last;
  }
  return nullptr;
}

void ProcessWatch::SuspectStandstill(const LockView& view, int64_t now_ns) {
  if (standstill_is_judged_ || !StandsStill(now_ns)) return;
  const auto sleeps = [this](const auto& entry) {
    return entry.second.wait.has_value() || entry.first == threads_.helper_tid();
  };
  // Threads that nothing is known of may want to run, and get no core.
  if (!std::ranges::all_of(threads_.threads(), sleeps)) return;
  // Until some thread runs, the answer stays.
  standstill_is_judged_ = true;
  if (!known_deadlocks_.empty()) return;
  if (view.locks.empty()) return;
  const auto ends = WaitEnds(view);
  if (!ends) {
    standstill_is_judged_ = false;
    return;
  }
  const LockWait* found = FindStuck(view, *ends);
  if (found == nullptr) return;
  const Frozen frozen = IsStopped(0) ? Frozen::kYes : AskWhetherFrozen(now_ns, [] { return true; });
  if (frozen == Frozen::kYes) {
    ++counters_->stopped;
    return;
  }
  if (frozen == Frozen::kNotKnown) {
    standstill_is_judged_ = false;
    return;
  }
  ++counters_->no_progress;
  const int64_t duration_ns = now_ns - threads_.StillSinceNs();
  HangCapture hang{.cause = HangCause::kNoProgress,
                   .explanation = "no thread has run for " + DurationInWords(duration_ns) + ", and " + InWords(*found),
                   .tid = found->owner_tid != 0 && !found->owner_is_gone ? found->owner_tid : found->waiter_tid,
                   .duration_ns = duration_ns};
  standstill_ = Suspect(std::move(hang), "no_progress", RuleTrigger::kNoProgress, now_ns);
}

}  // namespace stackd
