#include "daemon/collect/agent_session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/capture/waited_on.h"
#include "daemon/crashes/crash_capture.h"
#include "daemon/process/file_lock_holders.h"
#include "daemon/process/futex_words.h"
#include "daemon/process/lock_holders.h"
#include "daemon/process/motion_reader.h"
#include "daemon/process/process_description.h"
#include "daemon/process/threads_in_words.h"
#include "daemon/process/wait_facts.h"

namespace stackd {
namespace {

// Of the time a capture has, this part is kept for what comes after the helper's own deadline: statuses of the threads that
// did not answer, and the ones that nobody spoke for.
int64_t GraceNs(int64_t budget_ns) { return std::clamp(budget_ns / 4, kNsPerMs, 60 * kNsPerMs); }
// A helper that has not begun by then may be stopped with its process.
constexpr int64_t kLookForStopNs = 50 * kNsPerMs;
// Goroutines that have not begun by then may never run again, and what memory says is there at any time. On two busy CPUs,
// in a program that collects garbage all the time, one came after more than 250 ms.
constexpr int64_t kGoroutineBeginsNs = kNsPerSecond;
// A process without threads that has not begun by then may block the signal that wakes it.
constexpr int64_t kWakesNs = 200 * kNsPerMs;
constexpr useconds_t kLookForAwakeUs = 200;
// The message was sent before the dump began, and the server thread is about to read it.
constexpr int64_t kMemoryArrivesNs = 100 * kNsPerMs;
constexpr useconds_t kLookForMemoryUs = 200;
// Threads do not ring when they have committed a record (a wake call from a handler is a pause of the thread): the reader
// looks by itself this often. At 100,000 stacks a second that is 20 records, of the 381 slots of a 1 MiB ring.
constexpr int64_t kPollNs = 200'000;
constexpr int64_t kLoadModulesNs = 2 * kNsPerSecond;
// Dumps of itself that a process may ask for at once, and how often after that. Each is stored: more would push the dumps
// of other processes out.
constexpr int64_t kDumpRequestBurst = 10;
constexpr int64_t kDumpRequestNs = kNsPerSecond;
// Deadlines further off are as good as this one, and sums with them do not overflow.
constexpr int64_t kMaxCaptureNs = 3600 * kNsPerSecond;
// A process that has waited for so long is let go as soon as what it said is stored.
constexpr int64_t kCrashPatienceNs = kNsPerSecond;
// What threads wait for is read when they have answered: a capture that is late as it is has still so long for it.
constexpr int64_t kWaitFactsGraceNs = 20 * kNsPerMs;
constexpr int kMaxErrno = 4095;
constexpr std::string_view kAsleep =
    "no thread of the agent runs in it, since it has none of its own, and it blocks the signal that starts one (SIGURG)";
constexpr std::string_view kFilteredLimit =
    "it has put a filter of system calls (seccomp) on itself, which could end it for a call of the agent's; start it with "
    "STACKD_SECCOMP_DUMPS=1 if the filter allows them";
// Names of fds come from the process, which may not tell them.
constexpr size_t kMaxPolledFds = 20'000;
constexpr int64_t kFdNamesNs = 50 * kNsPerMs;
// For /proc/locks, and the open files of those that have locks.
constexpr int64_t kFileLocksNs = 500 * kNsPerMs;
// That threads of one process wait for; more are not looked up.
constexpr size_t kMaxFileLocks = 16;
constexpr int64_t kCrashFdNamesNs = 10 * kNsPerMs;
// Tasks say where they wait when they are run next: one whose worker is blocked never does. The process has 100 ms more to
// write down what they said (stackd_task_source_fn).
constexpr int64_t kAskTasksNs = 50 * kNsPerMs;
constexpr int64_t kTellTasksNs = 120 * kNsPerMs;
// Until threads that had been asked sleep again and that was seen: longer only where they wait for a core.
constexpr int64_t kMinConfirmWaitsNs = 100 * kNsPerMs;
constexpr int64_t kMaxConfirmWaitsNs = 500 * kNsPerMs;
// A process that tells by itself what its threads wait for answers within a millisecond or two, if its helper has a core.
constexpr int64_t kAskWaitsNs = kNsPerSecond;
// A thread costs the helper 5 us; then it may wait for a core.
constexpr int64_t kAskMotionNs = 300 * kNsPerMs;
constexpr int64_t kAskThreadNs = 50 * kNsPerMs;
// Some microseconds where nothing is in the way.
constexpr int64_t kReadFutexesNs = 100 * kNsPerMs;
// Modules that are loaded before anybody needs them.
constexpr int64_t kLoadEarlyNs = 200 * kNsPerMs;

// Of a traceback; a thousand goroutines have about this much.
constexpr size_t kMaxReportBytes = 1 << 20;

// Older than a process is held, or a tentative record is valid: the clock of the record is wrong.
constexpr int64_t kMaxCrashAgeNs = 2 * static_cast<int64_t>(STACKD_TENTATIVE_NS);

// The process chose the file: no other kind is written to.
bool IsDatagramSocket(const Fd& fd) {
  int type = 0;
  socklen_t type_bytes = sizeof(type);
  sockaddr_storage address{};
  socklen_t address_bytes = sizeof(address);
  return getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_DGRAM &&
         getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes) == 0 && address.ss_family == AF_UNIX;
}

std::string Number(int64_t n) { return std::to_string(n); }

// Locks have changed hands, and objects have moved, since `waits` were read. A thread that waits no more has no owner.
void TakeOwners(std::span<const ManagedWait> waits_now, std::vector<ManagedWait>* waits) {
  for (ManagedWait& wait : *waits) {
    const auto now = std::ranges::find(waits_now, wait.waiter_tid, &ManagedWait::waiter_tid);
    const bool waits_still = now != waits_now.end() && now->kind == wait.kind;
    wait.owner_tid = waits_still ? now->owner_tid : 0;
    if (waits_still) wait.lock_avma = now->lock_avma;
  }
}

ProcessFiles::Ask AskerOf(std::shared_ptr<AgentQuestions> questions) {
  return [questions = std::move(questions)](const stackd_wait_question& question) -> std::optional<stackd_wait_answer> {
    const auto answers = questions->AskWaits(std::span(&question, 1), MonotonicNs() + kAskThreadNs);
    return answers.front() && answers.front()->error == 0 ? answers.front() : std::nullopt;
  };
}

// A futex word that threads of the process may wait for.
void SetSharedWord(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// As long as it lives no sample begins, and one that runs ends.
class WantsCapture {
 public:
  explicit WantsCapture(std::atomic<int>* wanted) : wanted_(wanted) { wanted_->fetch_add(1); }
  ~WantsCapture() { wanted_->fetch_sub(1); }

 private:
  std::atomic<int>* const wanted_;
};

std::array<uint64_t, 2> NewCrashId(int64_t wall_ns) {
  std::array<uint64_t, 2> id;
  // A crash without an id could not be told from others: without random numbers its time is one.
  if (getrandom(id.data(), sizeof(id), 0) != sizeof(id)) id = {static_cast<uint64_t>(wall_ns), 0};
  return id;
}

}  // namespace

AgentSession::AgentSession(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessDescription process,
                           ProcessFiles files, std::unique_ptr<Ring> ring, ModuleCache* modules,
                           CollectorCounters* counters, std::unique_ptr<HeldSpoolFile> spool_file, MemoryBudgets* budgets)
    : socket_(std::move(socket)),
      peer_uid_(peer_uid),
      id_(process.id),
      shares_as_needed_((hello.flags & STACKD_HELLO_SHARES_AS_NEEDED) != 0),
      files_(std::make_shared<ProcessFiles>(std::move(files))),
      memory_(std::make_shared<const MemoryReader>(files_)),
      ring_(std::move(ring)),
      counters_(counters),
      stacks_budget_(budgets == nullptr ? nullptr : &budgets->stacks),
      description_(std::move(process)),
      dump_signal_(hello.dump_signal),
      first_tid_(hello.pid),
      has_handler_((hello.flags & STACKD_HELLO_NO_HANDLER) == 0),
      is_goroutine_((hello.flags & STACKD_HELLO_GOROUTINE) != 0),
      is_awake_((hello.flags & STACKD_HELLO_HAS_BELL) == 0),
      questions_(std::make_shared<AgentQuestions>(socket_.get())),
      asked_waits_(questions_.get(), files_.get()),
      task_tables_(socket_.get()),
      loader_(
          files_.get(), modules, FieldText(hello.exe),
          [this](const std::vector<std::string>& paths, int64_t deadline_ns) {
            if (is_filtered_.load()) return std::vector<std::optional<Fd>>(paths.size());
            return questions_->OpenFiles(paths, deadline_ns);
          },
          [this](uint64_t avma, uint64_t size_bytes, int64_t deadline_ns) {
            return ReadImage(avma, size_bytes, deadline_ns);
          },
          budgets == nullptr ? nullptr : &budgets->images),
      reader_(ring_.get()),
      spool_file_(std::move(spool_file)) {
  description_.connect_wall_ns = WallNs();
  if (has_handler_ && !is_goroutine_) files_->AskBy(AskerOf(questions_));
  if (description_.share != Share::kStacks && description_.share != Share::kNames && !files_->has_memory()) {
    description_.limits.push_back(
        "its memory cannot be read, since it may not open its own /proc/self/mem (not dumpable): the vDSO and files "
        "deleted since have no names");
  }
  if (!files_->has_maps()) {
    description_.limits.push_back(
        "its maps cannot be read, since it may not open its own /proc/self/maps (not dumpable): start it under the agent "
        "before it changes its user id");
  }
}

ProcessDescription AgentSession::Describe() const {
  int32_t threads = thread_count_.load();
  if (threads == 0) threads = files_->ThreadCount();
  std::lock_guard lock(description_mutex_);
  ProcessDescription description = description_;
  description.thread_count = threads;
  return description;
}

Result<std::vector<ThreadMotion>> AgentSession::ReadMotion(bool gives_way) {
  if (files_->has_folder()) {
    auto motions = ReadMotions(*files_);
    if (motions) thread_count_.store(static_cast<int32_t>(motions->size()));
    return motions;
  }
  const int32_t thread_count = files_->ThreadCount();
  if (thread_count == 0) return Error(Code::kUnavailable, "its threads cannot be listed: it has ended, or passed no file");
  thread_count_.store(thread_count);
  if (thread_count > 1) return AskMotion(gives_way);
  const auto motion = files_->FirstMotion(first_tid_);
  if (!motion || motion->run_count == 0) return Error(Code::kUnavailable, "the kernel does not tell how long threads run");
  return std::vector{*motion};
}

Result<std::vector<ThreadMotion>> AgentSession::AskMotion(bool gives_way) {
  const auto unavailable = [](const char* why) { return Error(Code::kUnavailable, why); };
  if (!TakesCommands()) return unavailable("no thread of the agent is there to look at its threads");
  const int64_t deadline_ns = MonotonicNs() + kAskMotionNs;
  std::unique_lock lock(capture_mutex_, std::defer_lock);
  if (!lock.try_lock_for(std::chrono::nanoseconds(kAskMotionNs))) {
    return Error(Code::kAborted, "a dump of processes/" + id_ + " was running");
  }
  if (IsStopped()) return unavailable("it is stopped");
  MotionLook look(seq_ + 1);
  const auto failure = Look(STACKD_COMMAND_MOTION, deadline_ns, gives_way, &motion_look_, &look);
  if (!failure) return std::unexpected(failure.error());
  std::vector<ThreadMotion> motions = look.Take();
  // Every thread has run once, or it could not be here.
  const bool told = std::ranges::any_of(motions, [](const ThreadMotion& motion) { return motion.run_count != 0; });
  if (*failure != 0 || !told) return unavailable("the kernel does not tell how long threads run");
  std::set<int32_t> tids;
  for (const ThreadMotion& motion : motions) tids.insert(motion.tid);
  if (look.helper_tid() != 0) tids.insert(look.helper_tid());
  RememberThreads(tids);
  return motions;
}

void AgentSession::RememberThreads(const std::set<int32_t>& tids) {
  std::lock_guard lock(threads_mutex_);
  std::erase_if(thread_names_, [&](const auto& entry) { return !tids.contains(entry.first); });
  for (const int32_t tid : tids) thread_names_.try_emplace(tid);
}

void AgentSession::RememberThreads(const std::vector<ThreadCapture>& threads) {
  std::lock_guard lock(threads_mutex_);
  thread_names_.clear();
  for (const ThreadCapture& thread : threads) {
    if (thread.status != ThreadStatus::kExited) thread_names_[thread.tid] = thread.name;
  }
}

std::map<int32_t, std::string> AgentSession::KnownThreads() const {
  std::map<int32_t, std::string> threads;
  if (!files_->has_folder()) {
    std::lock_guard lock(threads_mutex_);
    threads = thread_names_;
    threads.try_emplace(first_tid_);
    return threads;
  }
  for (const int32_t tid : files_->Tids()) threads.try_emplace(tid);
  return threads;
}

std::vector<int64_t> AgentSession::ReadProcessMotion() const {
  const auto ticks = files_->RunTicks();
  const auto first = files_->FirstMotion(first_tid_);
  if (!ticks || !first) return {};
  return {*ticks, first->run_ns, static_cast<int64_t>(first->run_count)};
}

char AgentSession::StateOf(int32_t tid) const {
  if (tid == 0 || tid == first_tid_) return files_->State();
  const auto look = files_->LookAt(tid);
  return look ? look->state : 0;
}

bool AgentSession::MayAskForDump() {
  int64_t now_ns = MonotonicNs();
  if (dump_requests_paid_ns_ > now_ns + (kDumpRequestBurst - 1) * kDumpRequestNs) {
    counters_->dump_requests_refused++;
    return false;
  }
  dump_requests_paid_ns_ = std::max(dump_requests_paid_ns_, now_ns) + kDumpRequestNs;
  return true;
}

bool AgentSession::OnMessage(ReceivedMessage* message, AgentRequest* request) {
  switch (message->type()) {
    case STACKD_MSG_FILE: {
      if (!message->As<stackd_file>()) return false;
      questions_->OnAnswer(message);
      return true;
    }
    case STACKD_MSG_NAME: {
      auto name = message->As<stackd_name>();
      if (!name) return false;
      std::lock_guard lock(description_mutex_);
      description_.display_name = FieldText(name->name);
      if (description_.display_name.empty()) {
        description_.display_name = DefaultName(description_.argv0, description_.executable);
      }
      return true;
    }
    case STACKD_MSG_FD_NAMES:
    case STACKD_MSG_IMAGE:
    case STACKD_MSG_WAIT_WORDS:
      questions_->OnAnswer(message);
      return true;
    case STACKD_MSG_HAS_TASKS:
      task_tables_.OnHasTasks();
      return true;
    case STACKD_MSG_TASKS:
      task_tables_.OnAnswer(message);
      return true;
    case STACKD_MSG_DUMP_REQUEST:
      *request = MayAskForDump() ? AgentRequest::kDump : AgentRequest::kNothing;
      return true;
    case STACKD_MSG_REPORT_FILE:
      return KeepReportFile(message);
    case STACKD_MSG_CRASH:
      *request = AgentRequest::kCrash;
      return true;
    case STACKD_MSG_BELL:
      KeepBell(message);
      is_awake_.store(false);
      // What a capture has asked for since the agent's thread has left, or before it could ring, waits for another one.
      if (captures_wanted_.load() > 0) Wake();
      return true;
    case STACKD_MSG_MEMORY:
      KeepMemory(message);
      return true;
    case STACKD_MSG_AWAKE:
      if (!is_awake_.exchange(true)) *request = AgentRequest::kPrefetch;
      return true;
    case STACKD_MSG_FILTERED:
      if (const auto filtered = message->As<stackd_filtered>()) SetFiltered(filtered->filtered != 0);
      return true;
    case STACKD_MSG_FAULT:
      *request = AgentRequest::kModules;
      return true;
    default:
      return true;
  }
}

bool AgentSession::KeepReportFile(ReceivedMessage* message) {
  auto report = message->As<stackd_report_file>();
  // Only a file in memory has seals: no other can make its reader wait.
  if (!report || message->fds.empty() || fcntl(message->fds.front().get(), F_GET_SEALS) < 0) return false;
  std::lock_guard lock(report_mutex_);
  report_file_ = std::move(message->fds.front());
  const bool is_known = report->language <= static_cast<uint32_t>(Language::kJavascript);
  report_.language = is_known ? static_cast<Language>(report->language) : Language::kUnknown;
  report_.title = FieldText(report->title);
  return true;
}

std::optional<RuntimeReport> AgentSession::ReadReport() {
  std::lock_guard lock(report_mutex_);
  if (!report_file_.valid()) return std::nullopt;
  RuntimeReport report = report_;
  report.text.resize(kMaxReportBytes);
  const ssize_t got = pread(report_file_.get(), report.text.data(), report.text.size(), 0);
  report_file_.Reset();
  // A file that has its size from the start holds zeros where nothing was written.
  report.text.resize(strnlen(report.text.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))));
  if (report.text.empty()) return std::nullopt;
  return report;
}

void AgentSession::OnClosed() {
  closed_ns_.store(MonotonicNs());
  connected_.store(false);
  questions_->OnClosed();
  task_tables_.OnClosed();
  reader_.Interrupt();
}

void AgentSession::KeepBell(ReceivedMessage* message) {
  const auto bell = message->As<stackd_bell>();
  if (!bell || message->fds.empty() || !IsDatagramSocket(message->fds.front())) return;
  std::lock_guard lock(bell_mutex_);
  bell_ = std::move(message->fds.front());
  sigterm_count_avma_ = bell->sigterm_count_avma;
  wake_signal_ = bell->signal;
}

void AgentSession::KeepMemory(ReceivedMessage* message) {
  if (!shares_as_needed_ || message->fds.empty() || !files_->SetMemory(&message->fds.front())) return;
  std::lock_guard lock(description_mutex_);
  description_.share = Share::kMemory;
}

void AgentSession::AwaitMemory() const {
  const bool is_passed = __atomic_load_n(&ring_->header()->memory_passed, __ATOMIC_RELAXED) != 0;
  const int64_t deadline_ns = MonotonicNs() + kMemoryArrivesNs;
  while (is_passed && shares_as_needed_ && !files_->has_memory() && connected() && MonotonicNs() < deadline_ns) {
    usleep(kLookForMemoryUs);
  }
}

Share AgentSession::share() const {
  std::lock_guard lock(description_mutex_);
  return description_.share;
}

void AgentSession::Wake() {
  if (is_awake_.load() || is_filtered_.load()) return;
  std::lock_guard lock(bell_mutex_);
  const char byte = 0;
  if (bell_.valid()) send(bell_.get(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool AgentSession::StaysAsleep() {
  if (is_awake() || is_filtered_.load()) return false;
  std::lock_guard lock(bell_mutex_);
  return files_->HoldsBack(wake_signal_);
}

void AgentSession::AwaitAwake(int64_t deadline_ns) {
  deadline_ns = std::min(deadline_ns, MonotonicNs() + kWakesNs);
  while (!is_awake() && !is_filtered_.load() && connected() && MonotonicNs() < deadline_ns) usleep(kLookForAwakeUs);
}

void AgentSession::SetFiltered(bool filtered) {
  is_filtered_.store(filtered);
  std::lock_guard lock(description_mutex_);
  std::erase(description_.limits, kFilteredLimit);
  if (filtered) description_.limits.emplace_back(kFilteredLimit);
}

Result<std::vector<uint8_t>> AgentSession::ReadImage(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns) {
  if (share() != Share::kNames || !TellsWaits() || is_filtered_.load()) {
    return Error(Code::kFailedPrecondition, "the process shares no memory");
  }
  auto bytes = questions_->ReadImage(avma, size_bytes, deadline_ns);
  if (bytes) files_->CountMemoryRead(size_bytes);
  return bytes;
}

void AgentSession::LoadModules(int64_t deadline_ns, std::vector<std::string>* notes) {
  auto map = loader_.Load(deadline_ns, notes);
  if (map) {
    std::lock_guard lock(map_mutex_);
    map_ = *map;
  } else {
    // The former map serves for the stacks of a process that has just ended.
    notes->push_back("its memory map could not be read: " + map.error().message);
  }
  // Also if it could not be had: nobody is to wait for it any more.
  SetSharedWord(&ring_->header()->modules_known, 1);
}

bool AgentSession::LoadModulesOfCrash(int64_t deadline_ns, std::vector<std::string>* notes) {
  const WantsCapture wanted(&captures_wanted_);
  std::unique_lock lock(capture_mutex_, std::defer_lock);
  // A live dump that runs ends as soon as it sees the crash.
  if (!lock.try_lock_for(std::chrono::nanoseconds(deadline_ns - MonotonicNs()))) return !connected();
  const bool known = Map() != nullptr && !loader_.awaits_files();
  if (known || !connected()) return true;
  LoadModules(deadline_ns, notes);
  return !loader_.awaits_files() || !connected() || is_filtered_.load();
}

std::shared_ptr<const AddressMap> AgentSession::Map() const {
  std::lock_guard lock(map_mutex_);
  return map_;
}

void AgentSession::LoadModulesEarly() {
  std::unique_lock lock(capture_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || Map() != nullptr || !connected() || !is_awake() || IsStopped()) return;
  std::vector<std::string> notes;
  LoadModules(MonotonicNs() + kLoadEarlyNs, &notes);
  lock.unlock();
  // A process that is stopped before its first dump has threads by these.
  (void)ReadMotion(/*gives_way=*/true);
}

// Sorts the records of a ring.
class AgentSession::RingListener : public RingReader::Listener {
 public:
  explicit RingListener(AgentSession* agent) : agent_(agent) {}

  void OnThread(ThreadRecord record) override {
    if (agent_->recording_ != nullptr) return agent_->recording_->OnThread(std::move(record));
    agent_->counters_->ring_records++;
    agent_->counters_->ring_late_records++;
  }
  void OnStatus(StatusRecord record) override {
    if (agent_->recording_ != nullptr) agent_->recording_->OnStatus(std::move(record));
  }
  void OnCrash(CrashRecord record) override { crashes_.push_back(std::move(record)); }
  void OnWait(WaitRecord record) override {
    agent_->counters_->ring_records++;
    if (agent_->sample_ != nullptr) agent_->sample_->OnWait(record);
  }
  void OnMotion(MotionRecord record) override {
    agent_->counters_->ring_records++;
    if (agent_->motion_look_ != nullptr) agent_->motion_look_->OnMotion(record);
  }
  void OnCorrupt(const char* what) override {
    agent_->counters_->ring_corrupt_records++;
    if (agent_->recording_ != nullptr) agent_->recording_->OnCorrupt(what);
  }

  std::vector<CrashRecord> TakeCrashes() { return std::move(crashes_); }

 private:
  AgentSession* const agent_;
  std::vector<CrashRecord> crashes_;
};

void AgentSession::SetCrashPhase(uint32_t phase) { SetSharedWord(&ring_->header()->crash_phase, phase); }

// With ring_mutex_.
void AgentSession::KeepCrash(CrashRecord record) {
  if (crashed_.load()) {
    counters_->crashes_repeated++;
    return;
  }
  counters_->crashes_taken++;
  crash_ = std::move(record);
  crashed_.store(true);
  SetCrashPhase(STACKD_CRASH_TAKEN);
}

void AgentSession::Drain() {
  std::lock_guard lock(ring_mutex_);
  RingListener listener(this);
  reader_.Drain(&listener);
  for (CrashRecord& crash : listener.TakeCrashes()) KeepCrash(std::move(crash));
}

bool AgentSession::TakeCrash() {
  bool ended = !connected();
  Drain();
  std::lock_guard lock(ring_mutex_);
  if (ended && !crashed_.load()) {
    RingListener listener(this);
    reader_.TakeTentative(closed_ns_.load(), &listener);
    std::vector<CrashRecord> crashes = listener.TakeCrashes();
    // A handler that jumped out of an older fault has recovered from it.
    auto newest = std::ranges::max_element(crashes, {}, &CrashRecord::time_ns);
    if (newest != crashes.end()) {
      counters_->crashes_tentative++;
      newest->flags |= STACKD_CRASH_HANDLED;
      KeepCrash(std::move(*newest));
    }
  }
  if (ended && !crashed_.load()) {
    crash_report_ = ReadReport();
    if (crash_report_) {
      counters_->crashes_taken++;
      crashed_.store(true);
    }
  }
  return crashed_.load() && !std::exchange(crash_claimed_, true);
}

void AgentSession::ReleaseCrash() { SetCrashPhase(STACKD_CRASH_STORED); }

void AgentSession::SayDumpIsRead() { SendMessage(socket_.get(), {STACKD_MSG_DUMP_READ, sizeof(stackd_message_header)}); }

void AgentSession::SendCommand(uint32_t command, const CaptureRequest& request) {
  stackd_ring_header* header = ring_->header();
  header->command = command;
  header->only_tid = static_cast<uint32_t>(request.only_tid);
  header->quiet = static_cast<uint32_t>(request.quiet);
  header->deadline_ns = static_cast<uint64_t>(request.deadline_ns - GraceNs(request.deadline_ns - MonotonicNs()));
  header->max_stack_bytes = std::min(request.max_stack_bytes, kMaxStackBytes);
  __atomic_store_n(&header->command_seq, ++seq_, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&header->helper_sleeping, __ATOMIC_SEQ_CST) == 0) return;
  stackd_kick kick{.header = {STACKD_MSG_KICK, sizeof(kick)}};
  SendMessage(socket_.get(), kick.header);
}

bool AgentSession::IsStopped() const {
  const char state = files_->State();
  return state == 'T' || state == 't';
}

void AgentSession::Record(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording) {
  stackd_ring_header* header = ring_->header();
  int64_t begin_ns = MonotonicNs();
  int64_t look_for_stop_ns = begin_ns + std::min(kLookForStopNs, (request.deadline_ns - begin_ns) / 4);
  bool looked_for_stop = false;
  for (;;) {
    // In this order: what was committed before these were set is drained after they were seen.
    uint32_t doorbell = reader_.Doorbell();
    bool connected_before = connected();
    bool done = __atomic_load_n(&header->done_seq, __ATOMIC_ACQUIRE) == seq_;
    Drain();
    if (__atomic_load_n(&header->begun_seq, __ATOMIC_ACQUIRE) == seq_) {
      recording->listed = __atomic_load_n(&header->threads_listed, __ATOMIC_RELAXED);
    }
    recording->failure = done ? Failure() : 0;
    recording->done = done && recording->failure == 0;
    recording->ended = !connected_before;
    recording->crashed = request.trigger != Trigger::kCrash && crashed_.load();
    recording->hurried = in_a_hurry != nullptr && in_a_hurry();
    if (done || !connected_before || recording->crashed || recording->hurried) return;
    int64_t now_ns = MonotonicNs();
    if (now_ns >= request.deadline_ns) return;
    bool begun = __atomic_load_n(&header->begun_seq, __ATOMIC_RELAXED) == seq_;
    if (!begun && !looked_for_stop && now_ns >= look_for_stop_ns) {
      looked_for_stop = true;
      recording->stopped = IsStopped();
      if (recording->stopped) return;
    }
    recording->unheard = is_goroutine_ && !begun && now_ns >= begin_ns + kGoroutineBeginsNs;
    if (recording->unheard) return;
    reader_.Wait(doorbell, kPollNs);
  }
}

void AgentSession::AccountForTheRest(const CaptureRequest& request, Recording* recording, Capture* capture) {
  const char process_state = files_->State();
  const bool is_stopped = process_state == 'T' || process_state == 't';
  for (const auto& [tid, name] : KnownThreads()) {
    if (recording->Has(static_cast<uint32_t>(tid))) continue;
    if (request.only_tid != 0 && tid != request.only_tid) continue;
    ThreadCapture* thread = recording->Add(static_cast<uint32_t>(tid));
    if (thread == nullptr) return;
    thread->status = ThreadStatus::kTimedOut;
    thread->name = name;
    if (is_stopped) thread->status = ThreadStatus::kStopped;
    if (is_stopped) thread->kernel_state = process_state;
    // Of thousands, procfs would take longer than the caller has.
    if (!files_->has_folder() || MonotonicNs() >= request.deadline_ns) continue;
    thread->name = files_->ThreadName(tid);
    thread->kernel_state = StateOf(tid);
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
  if (files_->has_folder() || request.only_tid != 0) return;
  const auto unknown = files_->ThreadCount() - static_cast<int64_t>(recording->size());
  if (unknown <= 0) return;
  capture->notes.push_back(Number(unknown) + " more threads are not known: they began since its threads were listed last");
}

int AgentSession::Failure() const {
  const int32_t failure = __atomic_load_n(&ring_->header()->failure, __ATOMIC_RELAXED);
  // The process may have written anything there.
  return failure >= 0 ? 0 : failure < -kMaxErrno ? EPROTO : -failure;
}

void AgentSession::CountDrops() {
  std::atomic<int64_t>* const totals[] = {&counters_->ring_dropped_no_slot, &counters_->ring_dropped_late,
                                          &counters_->ring_dropped_agent_fault, &counters_->ring_dropped_crash};
  for (size_t reason = 0; reason < std::size(totals); reason++) {
    uint64_t now = __atomic_load_n(&ring_->header()->dropped[reason], __ATOMIC_RELAXED);
    // A count that shrinks is a process's doing.
    if (now > dropped_seen_[reason])
      *totals[reason] += static_cast<int64_t>(std::min<uint64_t>(now - dropped_seen_[reason], 1u << 20));
    dropped_seen_[reason] = now;
  }
}

void AgentSession::RunDump(const CaptureRequest& request, const std::function<bool()>& in_a_hurry, Recording* recording,
                           Capture* capture) {
  if (!has_handler_) {
    capture->notes.push_back(
        "its threads were not asked, since it has no agent for native code: what follows is what its "
        "runtime keeps in memory");
    if (const std::string threads = ThreadsInWords(*files_); !threads.empty()) {
      capture->notes.push_back("its threads, as the kernel lists them: " + threads);
    }
    return;
  }
  if (const bool is_filtered = is_filtered_.load(); is_filtered || StaysAsleep()) {
    AccountForTheRest(request, recording, capture);
    capture->partial = true;
    capture->notes.push_back("its threads were not asked: " + std::string(is_filtered ? kFilteredLimit : kAsleep));
    return;
  }
  int64_t begin_ns = MonotonicNs();
  {
    std::lock_guard lock(ring_mutex_);
    recording_ = recording;
  }
  SendCommand(STACKD_COMMAND_DUMP, request);
  Record(request, in_a_hurry, recording);
  {
    std::lock_guard lock(ring_mutex_);
    recording_ = nullptr;
  }
  __atomic_store_n(&ring_->header()->cancel_seq, seq_, __ATOMIC_RELAXED);
  capture->duration_ns = MonotonicNs() - begin_ns;

  size_t answered = recording->size();
  if (!recording->done && !recording->ended) AccountForTheRest(request, recording, capture);
  CountDrops();
  uint32_t generation = __atomic_load_n(&ring_->header()->maps_generation, __ATOMIC_ACQUIRE);
  if (!recording->ended && !recording->stopped && !recording->hurried && generation != map_generation_) {
    LoadModules(std::max(request.deadline_ns, MonotonicNs() + 10 * kNsPerMs), &capture->notes);
    map_generation_ = generation;
  }
  auto of = [answered](size_t total) {
    return Number(static_cast<int64_t>(answered)) + " of " + Number(static_cast<int64_t>(total));
  };
  size_t threads = recording->size();
  capture->partial = !recording->done || recording->listed > threads;
  if (recording->ended) {
    capture->notes.push_back("the process ended during the dump: " + of(std::max<size_t>(recording->listed, answered)) +
                             " threads had answered");
  } else if (recording->crashed) {
    capture->notes.push_back("the process crashed during the dump: " + of(threads) +
                             " threads had answered; the crash has a dump of its own");
  } else if (recording->stopped) {
    capture->notes.push_back("the process is stopped: it answers after SIGCONT");
  } else if (recording->hurried) {
    capture->notes.push_back("many crashes came at once: " + of(threads) +
                             " threads had answered when the process was let go");
  } else if (recording->failure != 0) {
    capture->notes.push_back(std::string("its agent could not list its threads: ") + strerror(recording->failure));
  } else if (recording->unheard) {
    capture->notes.push_back("its threads were not asked: no goroutine of it came to run in " +
                             std::to_string(kGoroutineBeginsNs / kNsPerSecond) + " s");
  } else if (!recording->done) {
    capture->notes.push_back("the process did not finish the dump by the deadline: " + of(threads) +
                             " threads had answered");
  } else if (recording->listed > threads) {
    capture->notes.push_back(Number(recording->listed - static_cast<int64_t>(threads)) +
                             " threads are missing: the ring had no room for their statuses");
  }
}

Result<std::shared_ptr<Capture>> AgentSession::CaptureThreads(CaptureRequest request) {
  request.deadline_ns = std::min(request.deadline_ns, MonotonicNs() + kMaxCaptureNs);
  std::optional<WantsCapture> wanted(std::in_place, &captures_wanted_);
  std::unique_lock lock(capture_mutex_, std::defer_lock);
  auto wait = std::chrono::nanoseconds(std::max<int64_t>(0, request.deadline_ns - MonotonicNs()));
  if (!lock.try_lock_for(wait)) {
    return Error(Code::kDeadlineExceeded, "another dump of processes/" + id_ + " was running until the deadline");
  }
  counters_->captures++;
  auto capture = std::make_shared<Capture>();
  capture->trigger = request.trigger;
  capture->hang = request.hang;
  capture->crash = request.exception;
  const int64_t read_before_bytes = files_->memory_read_bytes();
  const int64_t begin_ns = MonotonicNs();
  Wake();
  AwaitAwake(request.deadline_ns);
  const bool stays_asleep = StaysAsleep();
  capture->begin_wall_ns = WallNs();
  if (capture->crash) capture->crash->id = NewCrashId(capture->begin_wall_ns);
  capture->dump_signal = dump_signal_;
  // What a process that had just come, and had no core, did not pass in time is asked for again, for a shorter time.
  const bool has_map = Map() != nullptr;
  const int64_t load_deadline_ns = std::min(request.deadline_ns, begin_ns + (has_map ? kLoadEarlyNs : kLoadModulesNs));
  if ((!has_map || loader_.awaits_files()) && !IsStopped() && !stays_asleep) {
    LoadModules(load_deadline_ns, &capture->notes);
  }

  Recording recording(seq_ + 1, counters_, stacks_budget_);
  RunDump(request, nullptr, &recording, capture.get());
  if (request.only_tid == 0) thread_count_.store(static_cast<int32_t>(recording.size()));
  Finish(&recording, capture.get());
  if (recording.done && request.only_tid == 0) RememberThreads(capture->threads);
  for (ThreadCapture& thread : capture->threads) {
    auto since = request.unmoved_since_ns.find(thread.tid);
    if (since != request.unmoved_since_ns.end()) thread.unmoved_ns = std::max<int64_t>(0, begin_ns - since->second);
  }
  lock.unlock();
  wanted.reset();
  AddWaits(request.deadline_ns, capture.get());
  // Behind that: threads run tasks for it, and would not be found waiting where they were captured.
  if (request.only_tid == 0) AddTasks(request.deadline_ns, capture.get());
  capture->memory_read_bytes = files_->memory_read_bytes() - read_before_bytes;
  return capture;
}

void AgentSession::AddTasks(int64_t deadline_ns, Capture* capture) {
  if (!connected() || !task_tables_.has_tasks() || IsStopped() || is_filtered_.load()) return;
  const int64_t now_ns = MonotonicNs();
  const int64_t left_ns = std::clamp(deadline_ns - now_ns, kWaitFactsGraceNs, kAskTasksNs + kTellTasksNs);
  auto table = task_tables_.Ask(now_ns + std::min(kAskTasksNs, left_ns / 2), now_ns + left_ns);
  if (table) {
    capture->task_table = std::move(*table);
  } else {
    capture->notes.push_back("its tasks are missing: " + table.error().message);
  }
}

void AgentSession::AddWaits(int64_t deadline_ns, Capture* capture) {
  if (!connected()) return;
  deadline_ns = std::max(deadline_ns, MonotonicNs() + kWaitFactsGraceNs);
  AddWaitFacts(deadline_ns, capture);
  // A crash must not hold the process for names.
  const int64_t names_ns = capture->trigger == Trigger::kCrash ? kCrashFdNamesNs : kFdNamesNs;
  AddFdNames(std::min(deadline_ns, MonotonicNs() + names_ns), capture);
  if (capture->trigger != Trigger::kCrash) AddFileLocks(MonotonicNs() + kFileLocksNs, capture);
}

void AgentSession::AddWaitFacts(int64_t deadline_ns, Capture* capture) {
  std::vector<ThreadCall> in_memory;
  for (ThreadCapture& thread : capture->threads) {
    if (!thread.call) continue;
    thread.waited_fds = WaitedFds(*thread.call);
    if (WaitsInMemory(*thread.call)) in_memory.push_back({thread.tid, *thread.call});
  }
  if (in_memory.empty()) return;
  auto facts = ReadFacts(RwlockLayoutOf(*capture->map), in_memory, deadline_ns);
  if (!facts) {
    capture->notes.push_back(facts.error().message);
    return;
  }
  if (facts->futex_count > kMaxFutexWords) {
    capture->notes.push_back("its threads wait on " + std::to_string(facts->futex_count) +
                             " futexes: " + std::to_string(kMaxFutexWords) + " futexes were looked at");
  }
  capture->futexes = std::move(facts->futexes);
  size_t polled_fds = 0;
  for (ThreadCapture& thread : capture->threads) {
    auto polled = facts->polled.find(thread.tid);
    if (polled == facts->polled.end()) continue;
    polled->second.resize(std::min(polled->second.size(), kMaxPolledFds - polled_fds));
    polled_fds += polled->second.size();
    thread.waited_fds = std::move(polled->second);
  }
  if (polled_fds == kMaxPolledFds) {
    capture->notes.push_back("its threads wait for more than " + std::to_string(kMaxPolledFds) +
                             " fds: the others are not named");
  }
  DropEndedCycles(std::move(in_memory), deadline_ns, capture);
  if (TellsWaits() && facts->futex_count <= kMaxFutexWords) ForgetUntold(capture);
  LookAtHolders(deadline_ns, capture);
}

void AgentSession::LookAtHolders(int64_t deadline_ns, Capture* capture) {
  if (!HasHolderOutsideCalls(*capture)) return;
  if (const auto sample = SampleWaits(deadline_ns, /*gives_way=*/true)) MarkHoldersAsleep(*sample, capture);
}

bool AgentSession::TellsWaits() const {
  const bool may_be_asked = has_handler_ && !is_goroutine_ && !files_->has_memory();
  const Share level = share();
  return may_be_asked && (level == Share::kStacks || level == Share::kNames);
}

Result<WaitFacts> AgentSession::ReadFacts(RwlockLayout layout, std::vector<ThreadCall> calls, int64_t deadline_ns) {
  constexpr std::string_view kWhat = "what locks its threads wait for, and who has them, ";
  if (TellsWaits()) {
    if (is_filtered_.load() || IsStopped()) {
      return Error(Code::kUnavailable, std::string(kWhat) + "is not known: the process tells it, and cannot answer now");
    }
    return asked_waits_.Facts(layout, calls, std::min(deadline_ns, MonotonicNs() + kAskWaitsNs));
  }
  if (!files_->has_memory()) {
    return Error(Code::kFailedPrecondition,
                 std::string(kWhat) + "cannot be read: the process may not open its own memory (not dumpable)");
  }
  auto facts = std::make_shared<WaitFacts>();
  const bool read = memory_->Run(deadline_ns, [=, calls = std::move(calls)](const ProcessFiles& files) {
    *facts = ReadWaitFacts(files, layout, calls, deadline_ns);
  });
  if (read) return std::move(*facts);
  return Error(Code::kUnavailable, std::string(kWhat) +
                                       "could not be read in time: the kernel holds up whoever reads the memory of the "
                                       "process");
}

Result<std::shared_ptr<Capture>> AgentSession::Outline() const {
  auto map = Map();
  if (map == nullptr) return Error(Code::kUnavailable, "what processes/" + id_ + " has mapped is not known yet");
  auto outline = std::make_shared<Capture>();
  outline->map = std::move(map);
  if (files_->has_memory()) outline->memory = memory_;
  outline->process = Describe();
  return outline;
}

void AgentSession::DropEndedCycles(std::vector<ThreadCall> calls, int64_t deadline_ns, Capture* capture) {
  if (EdgesInCircles(EdgesOf(calls, capture->futexes)).empty()) return;
  ConfirmWaits(std::move(calls), {}, deadline_ns, capture);
}

void AgentSession::DropEndedCyclesOfRuntimes(const LookAtLocks& look, int64_t deadline_ns, Capture* capture) {
  std::vector<ThreadCall> calls;
  for (const ThreadCapture& thread : capture->threads) {
    if (thread.call) calls.push_back({thread.tid, *thread.call});
  }
  // Circles of futexes alone are confirmed by now.
  const auto in_circles = EdgesInCircles(EdgesOf(calls, capture->futexes, capture->managed.waits));
  if (std::ranges::any_of(in_circles, [](const LockEdge& edge) { return edge.futex_avma == 0; })) {
    ConfirmWaits(std::move(calls), look, deadline_ns, capture);
  }
}

void AgentSession::DropWaitsThatEnded(Capture* capture) {
  std::set<int32_t> agents;
  std::vector<LockEdge> waits;  // each thread for itself: that is a circle
  for (const ThreadCapture& thread : capture->threads) {
    if (thread.is_agent) agents.insert(thread.tid);
    if (thread.is_agent || thread.status == ThreadStatus::kExited) continue;
    const auto futex = thread.call ? WaitedFutex(*thread.call) : std::nullopt;
    if (!futex) return;
    waits.push_back({thread.tid, thread.tid, *futex});
  }
  if (waits.empty() || IsStopped()) return;
  const int64_t deadline_ns = MonotonicNs() + kMaxConfirmWaitsNs;
  std::set<int32_t> now;
  CircleProbe probe;
  probe.read_motion = [&] {
    auto motions = ReadMotion(/*gives_way=*/true).value_or(std::vector<ThreadMotion>{});
    for (const ThreadMotion& motion : motions) now.insert(motion.tid);
    return motions;
  };
  probe.sample = [&] { return SampleWaits(deadline_ns, /*gives_way=*/true); };
  probe.read_locks = [&](const std::vector<ThreadWait>&) { return std::optional(waits); };
  probe.is_connected = [&] { return connected(); };
  const auto [has_looked, unconfirmed_tids] = ConfirmCircles(probe, deadline_ns);
  const bool has_more = std::ranges::any_of(now, [&](int32_t tid) {
    return !agents.contains(tid) && std::ranges::find(waits, tid, &LockEdge::waiter_tid) == waits.end();
  });
  for (ThreadCapture& thread : capture->threads) {
    if (has_more || unconfirmed_tids.contains(thread.tid)) thread.call.reset();
  }
}

void AgentSession::ConfirmWaits(std::vector<ThreadCall> calls, const LookAtLocks& look, int64_t deadline_ns,
                                Capture* capture) {
  // In a stopped process nobody goes on.
  if (IsStopped()) return;
  const int64_t now_ns = MonotonicNs();
  deadline_ns = std::clamp(deadline_ns, now_ns + kMinConfirmWaitsNs, now_ns + kMaxConfirmWaitsNs);
  std::vector<FutexWait> futexes;
  for (const ThreadCall& thread : calls) {
    if (const auto futex = WaitedFutex(thread.call)) futexes.push_back({thread.tid, *futex});
  }
  std::vector<ManagedWait>& waits = capture->managed.waits;
  CircleProbe probe;
  const bool gives_way = !capture->crash.has_value();
  probe.read_motion = [&, gives_way] { return ReadMotion(gives_way).value_or(std::vector<ThreadMotion>{}); };
  probe.sample = [&, gives_way] { return SampleWaits(deadline_ns, gives_way); };
  probe.is_connected = [&] { return connected(); };
  probe.read_locks = [&](const std::vector<ThreadWait>& sample) -> std::optional<std::vector<LockEdge>> {
    auto words = ReadFutexes(futexes);
    auto waits_now = look ? look(sample, deadline_ns) : std::vector<ManagedWait>{};
    if (!words || !waits_now) return std::nullopt;
    capture->futexes = std::move(*words);
    TakeOwners(*waits_now, &waits);
    return EdgesOf(calls, capture->futexes, waits);
  };
  const auto before = EdgesInCircles(EdgesOf(calls, capture->futexes, waits));
  auto [has_looked, unconfirmed_tids] = ConfirmCircles(probe, deadline_ns);
  if (!has_looked) {
    capture->notes.push_back(
        "threads wait for each other in a circle by one reading of their locks; it could not be confirmed by a second");
    for (const LockEdge& edge : before) {
      if (edge.futex_avma == 0) unconfirmed_tids.insert(edge.waiter_tid);
    }
  }
  for (ManagedWait& wait : waits) {
    if (unconfirmed_tids.erase(wait.waiter_tid) != 0) wait.owner_tid = 0;
  }
  for (ThreadCapture& thread : capture->threads) {
    if (unconfirmed_tids.contains(thread.tid)) thread.call.reset();
  }
}

void AgentSession::AddFdNames(int64_t deadline_ns, Capture* capture) {
  std::vector<int32_t> fds;
  for (const ThreadCapture& thread : capture->threads) {
    fds.insert(fds.end(), thread.waited_fds.begin(), thread.waited_fds.end());
  }
  if (!fds.empty() && !is_filtered_.load()) capture->fds = questions_->DescribeFds(fds, deadline_ns);
}

void AgentSession::AddFileLocks(int64_t deadline_ns, Capture* capture) {
  std::vector<FileLockWait> waits;
  for (const ThreadCapture& thread : capture->threads) {
    const auto kind = thread.call ? WaitedFileLock(*thread.call) : std::nullopt;
    // The kernel records no process for the wait of an open file.
    if (!kind || *kind == FileLockKind::kOpenFile || thread.waited_fds.empty()) continue;
    const auto is_same = [&](const FileLockWait& wait) { return wait.fd == thread.waited_fds[0] && wait.kind == *kind; };
    if (waits.size() == kMaxFileLocks || std::ranges::any_of(waits, is_same)) continue;
    waits.push_back({thread.waited_fds[0], *kind, thread.tid});
  }
  if (waits.empty()) return;
  const int32_t pid = PidForDaemon();
  auto locks = std::make_shared<std::vector<FileLock>>();
  const bool read = memory_->Run(deadline_ns, [=, waits = std::move(waits)](const ProcessFiles& files) {
    *locks = FindFileLockHolders(files, pid, waits, deadline_ns);
  });
  if (read) capture->file_locks = std::move(*locks);
}

int32_t AgentSession::PidForDaemon() const {
  if (const int32_t pid = files_->PidInOwnProcfs(); pid != 0) return pid;
  // Another process may have connected for one without handlers.
  if (!has_handler_) return 0;
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  return getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0 ? peer.pid : 0;
}

bool AgentSession::TakesCommands() const { return has_handler_ && !is_goroutine_ && is_awake() && !is_filtered_.load(); }

Result<std::vector<ThreadWait>> AgentSession::SampleWaits(int64_t deadline_ns, bool gives_way) {
  if (!has_handler_ || is_goroutine_ || !is_awake()) return std::vector<ThreadWait>{};
  if (is_filtered_.load()) {
    return Error(Code::kFailedPrecondition,
                 "the threads of processes/" + id_ + " cannot be looked at: " + std::string(kFilteredLimit));
  }
  deadline_ns = std::min(deadline_ns, MonotonicNs() + kMaxCaptureNs);
  std::unique_lock lock(capture_mutex_, std::defer_lock);
  auto wait = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
  if (!lock.try_lock_for(wait)) {
    return Error(Code::kDeadlineExceeded, "a dump of processes/" + id_ + " was running until the deadline");
  }
  if (IsStopped()) return Error(Code::kUnavailable, "processes/" + id_ + " is stopped: it cannot look at its threads");
  WaitSample sample(seq_ + 1);
  const auto failure = Look(STACKD_COMMAND_SAMPLE, deadline_ns, gives_way, &sample_, &sample);
  if (!failure) return std::unexpected(failure.error());
  // Its one thread has waited for long, and is not woken for that: then there is none.
  if (is_awake()) SetSampleLimit(*failure == 0 ? "" : strerror(*failure));
  if (*failure == 0) return sample.Take();
  return Error(Code::kFailedPrecondition,
               "what the threads of processes/" + id_ + " sleep in cannot be read: " + strerror(*failure));
}

template <typename T>
Result<int> AgentSession::Look(uint32_t command, int64_t deadline_ns, bool gives_way, T** listener, T* look) {
  {
    std::lock_guard lock(ring_mutex_);
    *listener = look;
  }
  SendCommand(command, {.deadline_ns = deadline_ns});
  const Result<int> failure = AwaitLook(deadline_ns, gives_way);
  {
    std::lock_guard lock(ring_mutex_);
    *listener = nullptr;
  }
  __atomic_store_n(&ring_->header()->cancel_seq, seq_, __ATOMIC_RELAXED);
  CountDrops();
  return failure;
}

Result<int> AgentSession::AwaitLook(int64_t deadline_ns, bool gives_way) {
  for (;;) {
    // In this order, as in Record().
    const uint32_t doorbell = reader_.Doorbell();
    const bool connected_before = connected();
    const bool done = __atomic_load_n(&ring_->header()->done_seq, __ATOMIC_ACQUIRE) == seq_;
    Drain();
    if (done) return Failure();
    if (!connected_before) return Error(Code::kNotFound, "processes/" + id_ + " has ended", "PROCESS_EXITED");
    if (!is_awake()) return 0;
    if (gives_way && (captures_wanted_.load() > 0 || crashed_.load())) {
      return Error(Code::kAborted, "a dump of processes/" + id_ + " went first");
    }
    if (MonotonicNs() >= deadline_ns) {
      return Error(Code::kDeadlineExceeded, "processes/" + id_ + " did not look at its threads by the deadline");
    }
    reader_.Wait(doorbell, kPollNs);
  }
}

void AgentSession::SetSampleLimit(std::string why) {
  static constexpr std::string_view kLimit = "what its threads sleep in cannot be read";
  std::lock_guard lock(description_mutex_);
  std::erase_if(description_.limits, [](const std::string& limit) { return limit.starts_with(kLimit); });
  if (why.empty()) return;
  description_.limits.push_back(std::string(kLimit) + " (" + std::move(why) +
                                "): deadlocks and standstills of it are not noticed");
}

Result<std::vector<FutexWord>> AgentSession::ReadFutexes(std::vector<FutexWait> waits) {
  const auto map = Map();
  const RwlockLayout layout = map == nullptr ? RwlockLayout::kCurrent : RwlockLayoutOf(*map);
  const int64_t deadline_ns = MonotonicNs() + kReadFutexesNs;
  if (TellsWaits() && is_awake() && !is_filtered_.load()) return asked_waits_.Words(layout, waits, deadline_ns);
  if (!files_->has_memory()) {
    return Error(Code::kUnavailable, "processes/" + id_ + " may not open its own memory (not dumpable)");
  }
  std::vector<uint64_t> avmas;
  for (const FutexWait& wait : waits) avmas.push_back(wait.avma);
  auto words = std::make_shared<std::vector<FutexWord>>();
  const bool read = memory_->Run(deadline_ns, [words, layout, avmas = std::move(avmas)](const ProcessFiles& files) {
    *words = ReadFutexWords(files, layout, avmas);
  });
  if (!read) return Error(Code::kUnavailable, "the kernel holds up whoever reads the memory of processes/" + id_);
  return std::move(*words);
}

bool AgentSession::HasThreadAndMemory(int32_t tid, const AgentSession& waiter, const SharedMemory& memory,
                                      int64_t deadline_ns) const {
  if (!connected() || !files_->CountsThreadsAs(*waiter.files_) || StateOf(tid) == 0) return false;
  auto found = std::make_shared<bool>(false);
  const bool read = memory_->Run(deadline_ns, [found, memory](const ProcessFiles& files) {
    const auto text = files.ReadMaps();
    if (!text) return;
    *found = std::ranges::any_of(ParseMaps(*text), [&](const Mapping& mapping) {
      return mapping.shared && SharedMemory{mapping.device, mapping.inode} == memory;
    });
  });
  return read && *found;
}

Result<SigtermSigns> AgentSession::ReadSigtermSigns() {
  const auto is_pending = files_->HasPendingSigterm();
  if (!is_pending) return Error(Code::kUnavailable, "processes/" + id_ + " has ended, or passed no folder");
  SigtermSigns signs{.is_pending = *is_pending};
  if (TellsWaits()) {
    if (is_awake() && !is_filtered_.load() && !IsStopped()) {
      signs.taken_count = asked_waits_.SigtermCount(MonotonicNs() + kReadFutexesNs);
    }
    return signs;
  }
  uint64_t avma = __atomic_load_n(&ring_->header()->sigterm_count_avma, __ATOMIC_RELAXED);
  if (avma == 0) {
    std::lock_guard lock(bell_mutex_);
    avma = sigterm_count_avma_;
  }
  if (avma == 0 || !files_->has_memory()) return signs;
  auto count = std::make_shared<std::optional<uint64_t>>();
  const bool read = memory_->Run(MonotonicNs() + kReadFutexesNs, [count, avma](const ProcessFiles& files) {
    uint64_t word = 0;
    const auto bytes = std::span(reinterpret_cast<uint8_t*>(&word), sizeof(word));
    if (files.ReadSome(avma, bytes) == sizeof(word)) *count = word;
  });
  if (read) signs.taken_count = *count;
  return signs;
}

void AgentSession::Finish(Recording* recording, Capture* capture) {
  AwaitMemory();
  capture->map = Map();
  if (capture->map == nullptr) capture->map = std::make_shared<const AddressMap>(std::vector<Mapping>{});
  if (files_->has_memory()) capture->memory = memory_;
  capture->threads = recording->TakeThreads();
  capture->held = recording->TakeHeld();
  recording->AddNotes(&capture->notes);
  capture->process = Describe();
  // Who shares as needed has nothing that would be missing.
  std::string loss = shares_as_needed_ ? "" : LossOf(capture->process.share);
  if (!loss.empty()) capture->notes.push_back(std::move(loss));
}

std::shared_ptr<Capture> AgentSession::CaptureReport(RuntimeReport report) {
  auto capture = std::make_shared<Capture>();
  capture->trigger = Trigger::kCrash;
  capture->begin_wall_ns = WallNs();
  CrashCapture& crash = capture->crash.emplace();
  crash.id = NewCrashId(capture->begin_wall_ns);
  Recording recording(0, counters_);
  Finish(&recording, capture.get());
  // Stands for whichever thread it was: the report does not say.
  crash.tid = capture->process.pid;
  ThreadCapture& thread = capture->threads.emplace_back();
  thread.tid = crash.tid;
  thread.status = ThreadStatus::kExited;
  capture->managed.reports.push_back(std::move(report));
  capture->memory = nullptr;
  return capture;
}

std::shared_ptr<Capture> AgentSession::CaptureCrash(int64_t deadline_ns, std::vector<std::string> notes,
                                                    const std::function<bool()>& in_a_hurry) {
  if (crash_report_) return CaptureReport(*std::exchange(crash_report_, std::nullopt));
  CrashRecord crash;
  {
    std::lock_guard lock(ring_mutex_);
    crash = std::move(*crash_);
    crash_.reset();
  }
  int64_t now_ns = MonotonicNs();
  int64_t age_ns = now_ns - std::min(now_ns, crash.time_ns);
  auto capture = std::make_shared<Capture>();
  capture->trigger = Trigger::kCrash;
  capture->begin_wall_ns = WallNs() - std::min(age_ns, kMaxCrashAgeNs);
  capture->dump_signal = dump_signal_;
  capture->notes = std::move(notes);
  capture->crash = ToCrashCapture(crash);

  const int64_t read_before_bytes = files_->memory_read_bytes();
  CaptureRequest request{.trigger = Trigger::kCrash, .deadline_ns = deadline_ns};
  std::optional<WantsCapture> wanted(std::in_place, &captures_wanted_);
  std::unique_lock lock(capture_mutex_, std::defer_lock);
  bool has_turn = lock.try_lock_for(std::chrono::nanoseconds(deadline_ns - now_ns));
  Recording recording(has_turn ? seq_ + 1 : 0, counters_, stacks_budget_);
  AddCrashedThread(std::move(crash), &recording, capture.get());
  // Too late, also if it ended while it was asked: its file has what was mapped.
  const bool knows_modules = Map() != nullptr && !(has_turn && loader_.awaits_files());
  if (!knows_modules && spool_file_ != nullptr && spool_file_->HasCrash(capture->crash->id)) return nullptr;
  if (connected() && has_turn && age_ns < kCrashPatienceNs && !in_a_hurry()) {
    RunDump(request, in_a_hurry, &recording, capture.get());
  } else {
    capture->partial = true;
    capture->notes.push_back(!connected() ? "the process had ended: its other threads could not be asked"
                             : has_turn   ? "many crashes came at once: the other threads of this process were not asked"
                                          : "another dump did not end: the other threads of this process were not asked");
    if (connected()) counters_->crashes_hurried++;
  }
  thread_count_.store(static_cast<int32_t>(recording.size()));
  Finish(&recording, capture.get());
  // Whole since the process ended, as which it has no memory any more. Of one that is held that says more.
  if (!connected()) {
    capture->memory = nullptr;
    if (auto report = ReadReport()) capture->managed.reports.push_back(std::move(*report));
  }
  if (has_turn) lock.unlock();
  wanted.reset();
  if (task_tables_.has_tasks()) {
    capture->notes.push_back(
        "its tasks are missing: to say where they wait they would have to run on, in a process that crashed");
  }
  if (!in_a_hurry()) AddWaits(request.deadline_ns, capture.get());
  capture->memory_read_bytes = files_->memory_read_bytes() - read_before_bytes;
  return capture;
}

}  // namespace stackd
