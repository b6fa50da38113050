#include "daemon/collect/agent.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/ring/ring_reader.h"

namespace stackd {
namespace {

// Of the time a capture has, this part is kept for what comes after the helper's own deadline: statuses of the threads that
// did not answer, and the ones that nobody spoke for.
int64_t GraceNs(int64_t budget_ns) { return std::clamp(budget_ns / 4, kNsPerMs, 60 * kNsPerMs); }
// A helper that has not begun by then may be stopped with its process.
constexpr int64_t kLookForStopNs = 50 * kNsPerMs;
// Threads do not ring when they have committed a record (a wake call from a handler is a pause of the thread): the reader
// looks by itself this often. At 100,000 stacks a second that is 20 records, of the 381 slots of a 1 MiB ring.
constexpr int64_t kPollNs = 200'000;
constexpr int64_t kLoadModulesNs = 2 * kNsPerSecond;
constexpr size_t kMaxThreads = 100'000;
// Dumps of itself that a process may ask for at once, and how often after that. Each is stored: more would push the dumps
// of other processes out.
constexpr int64_t kDumpRequestBurst = 10;
constexpr int64_t kDumpRequestNs = kNsPerSecond;
// Deadlines further off are as good as this one, and sums with them do not overflow.
constexpr int64_t kMaxCaptureNs = 3600 * kNsPerSecond;
// Of all stacks in one capture; 10,000 threads of 4 KiB in use take about 10 MiB.
constexpr size_t kMaxCaptureBytes = 256u << 20;

int64_t StartWallNs(uint64_t start_ticks) {
  int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  if (start_ticks > static_cast<uint64_t>(INT64_MAX / kNsPerSecond)) return 0;
  int64_t since_boot_ns = static_cast<int64_t>(start_ticks) * (kNsPerSecond / ticks_per_second);
  return WallNs() - ClockNs(CLOCK_BOOTTIME) + since_boot_ns;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// What a person calls the process when it has not named itself.
std::string DefaultName(const std::string& argv0, const std::string& executable) {
  std::string name = BaseName(argv0.substr(0, argv0.find(' ')));
  // Some programs write their state over argv[0]: "postgres: checkpointer". The word before the colon is the program.
  if (!name.empty() && name.back() == ':') name.pop_back();
  return name.empty() ? BaseName(executable) : name;
}

std::string Number(int64_t n) { return std::to_string(n); }

}  // namespace

Agent::Agent(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessFiles files, std::unique_ptr<Ring> ring,
             std::string id, ModuleCache* modules, CollectorCounters* counters)
    : socket_(std::move(socket)),
      peer_uid_(peer_uid),
      id_(std::move(id)),
      files_(std::move(files)),
      ring_(std::move(ring)),
      counters_(counters),
      dump_signal_(hello.dump_signal),
      loader_(&files_, modules, FieldText(hello.exe), [this](const std::vector<std::string>& paths, int64_t deadline_ns) {
        return OpenFiles(paths, deadline_ns);
      }) {
  description_.id = id_;
  description_.pid = hello.pid;
  description_.uid = static_cast<int32_t>(peer_uid);
  description_.abi_version = hello.abi_version;
  description_.executable = FieldText(hello.exe);
  description_.argv0 = FieldText(hello.argv0);
  description_.hostname = FieldText(hello.hostname);
  description_.display_name = FieldText(hello.name);
  if (description_.display_name.empty()) {
    description_.display_name = DefaultName(description_.argv0, description_.executable);
  }
  description_.start_wall_ns = StartWallNs(hello.start_ticks);
  description_.connect_wall_ns = WallNs();
  if (!files_.has_memory()) {
    description_.limits.push_back(
        "its memory cannot be read, since it may not open its own /proc/self/mem (not dumpable): the vDSO and files "
        "deleted since have no names");
  }
  if (!files_.has_maps()) {
    description_.limits.push_back(
        "its maps cannot be read, since it may not open its own /proc/self/maps (not dumpable): start it under the agent "
        "before it changes its user id");
  }
}

ProcessDescription Agent::Describe() const {
  int32_t threads = thread_count_.load();
  if (threads == 0) threads = static_cast<int32_t>(files_.Tids().size());
  std::lock_guard lock(description_mutex_);
  ProcessDescription description = description_;
  description.thread_count = threads;
  return description;
}

bool Agent::MayAskForDump() {
  int64_t now_ns = MonotonicNs();
  if (dump_requests_paid_ns_ > now_ns + (kDumpRequestBurst - 1) * kDumpRequestNs) {
    counters_->dump_requests_refused++;
    return false;
  }
  dump_requests_paid_ns_ = std::max(dump_requests_paid_ns_, now_ns) + kDumpRequestNs;
  return true;
}

bool Agent::OnMessage(ReceivedMessage* message, bool* wants_dump) {
  switch (message->type()) {
    case STACKD_MSG_FILE: {
      auto file = message->As<stackd_file>();
      if (!file) return false;
      std::lock_guard lock(files_mutex_);
      auto awaited = awaited_files_.find(file->request_id);
      if (awaited == awaited_files_.end()) return true;  // after its deadline
      if (file->error == 0 && !message->fds.empty()) opened_files_[awaited->second] = std::move(message->fds.front());
      awaited_files_.erase(awaited);
      if (awaited_files_.empty()) files_changed_.notify_all();
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
    case STACKD_MSG_DUMP_REQUEST:
      *wants_dump = MayAskForDump();
      return true;
    default:
      return true;
  }
}

void Agent::OnClosed() {
  connected_.store(false);
  {
    std::lock_guard lock(files_mutex_);
    awaited_files_.clear();
    files_changed_.notify_all();
  }
  RingReader(ring_.get()).Interrupt();
}

std::vector<Fd> Agent::OpenFiles(const std::vector<std::string>& paths, int64_t deadline_ns) {
  std::unique_lock lock(files_mutex_);
  opened_files_.clear();
  opened_files_.resize(paths.size());
  awaited_files_.clear();
  for (size_t i = 0; i < paths.size(); i++) {
    stackd_open_file request{};
    request.header = {STACKD_MSG_OPEN_FILE, sizeof(request)};
    if (paths[i].size() >= sizeof(request.path)) continue;
    request.request_id = next_file_request_++;
    paths[i].copy(request.path, paths[i].size());
    awaited_files_[request.request_id] = i;
    while (!SendMessage(socket_.get(), request.header)) {
      // Its queue is full: answers of the helper make room.
      auto until = std::chrono::milliseconds(5);
      if (!connected() || MonotonicNs() >= deadline_ns) break;
      files_changed_.wait_for(lock, until);
    }
  }
  auto left = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
  files_changed_.wait_for(lock, left, [this] { return awaited_files_.empty() || !connected(); });
  awaited_files_.clear();
  return std::move(opened_files_);
}

void Agent::LoadModules(int64_t deadline_ns, std::vector<std::string>* notes) {
  auto map = loader_.Load(deadline_ns, notes);
  if (map) {
    map_ = *map;
  } else {
    // The former map serves for the stacks of a process that has just ended.
    notes->push_back("its memory map could not be read: " + map.error().message);
  }
}

// What the records of one dump add up to.
class Agent::Recording : public RingReader::Listener {
 public:
  Recording(uint32_t seq, CollectorCounters* counters) : seq_(seq), counters_(counters) {}

  void OnThread(ThreadRecord record) override {
    counters_->ring_records++;
    if (record.seq != seq_) {
      counters_->ring_late_records++;
      return;
    }
    ThreadCapture* thread = Add(record.tid);
    if (thread == nullptr || thread->has_stack) return;
    thread->name = std::move(record.name);
    thread->cpu_ns = record.cpu_ns;
    thread->pause_ns = (record.flags & STACKD_THREAD_BY_HELPER) != 0 ? 0 : record.handler_ns;
    thread->thread_self_avma = record.thread_self_avma;
    std::copy(std::begin(record.registers), std::end(record.registers), thread->registers.value.begin());
    size_t bytes = 8 * (record.masks.capacity() + record.words.capacity());
    if (captured_bytes_ + bytes > kMaxCaptureBytes) {
      over_limit_++;
      return;
    }
    captured_bytes_ += bytes;
    thread->has_stack = true;
    thread->stack_truncated = (record.flags & STACKD_THREAD_TRUNCATED) != 0;
    thread->stack = StackCopy(record.stack_base_avma, record.stack_words, std::move(record.masks), std::move(record.words));
    if ((record.flags & STACKD_THREAD_BY_HELPER) == 0) thread->status = ThreadStatus::kCaptured;
  }

  void OnStatus(StatusRecord record) override {
    counters_->ring_records++;
    if (record.seq != seq_) return;
    ThreadCapture* thread = Add(record.tid);
    if (thread == nullptr) return;
    thread->status = static_cast<ThreadStatus>(record.status);
    thread->kernel_state = record.kernel_state;
    thread->wait_channel = std::move(record.wait_channel);
    if (!record.name.empty()) thread->name = std::move(record.name);
  }

  void OnCorrupt(const char* what) override {
    counters_->ring_corrupt_records++;
    corrupt_++;
    last_corruption_ = what;
  }

  ThreadCapture* Add(uint32_t tid) {
    auto [it, added] = index_.try_emplace(tid, threads_.size());
    if (added) {
      if (threads_.size() >= kMaxThreads) {
        index_.erase(it);
        return nullptr;
      }
      threads_.emplace_back().tid = static_cast<int32_t>(tid);
    }
    return &threads_[it->second];
  }

  bool Has(uint32_t tid) const { return index_.contains(tid); }
  size_t size() const { return threads_.size(); }

  std::vector<ThreadCapture> TakeThreads() {
    std::ranges::sort(threads_, {}, &ThreadCapture::tid);
    return std::move(threads_);
  }

  void AddNotes(std::vector<std::string>* notes) const {
    if (corrupt_ > 0) notes->push_back(Number(corrupt_) + " records of the ring made no sense: " + last_corruption_);
    if (over_limit_ > 0) {
      notes->push_back(Number(over_limit_) + " stacks were dropped: the dump has more than " +
                       Number(kMaxCaptureBytes >> 20) + " MiB");
    }
  }

  bool ended = false;    // the process did
  bool stopped = false;  // the process is
  bool done = false;     // the helper said so
  uint32_t listed = 0;

 private:
  const uint32_t seq_;
  CollectorCounters* const counters_;
  std::vector<ThreadCapture> threads_;
  std::unordered_map<uint32_t, size_t> index_;
  size_t captured_bytes_ = 0;
  int64_t over_limit_ = 0;
  int64_t corrupt_ = 0;
  const char* last_corruption_ = "";
};

void Agent::SendCommand(const CaptureRequest& request) {
  stackd_ring_header* header = ring_->header();
  header->command = STACKD_COMMAND_DUMP;
  header->deadline_ns = static_cast<uint64_t>(request.deadline_ns - GraceNs(request.deadline_ns - MonotonicNs()));
  header->max_stack_bytes = std::min(request.max_stack_bytes, RingReader::kMaxStackBytes);
  __atomic_store_n(&header->command_seq, ++seq_, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&header->helper_sleeping, __ATOMIC_SEQ_CST) == 0) return;
  stackd_kick kick{.header = {STACKD_MSG_KICK, sizeof(kick)}};
  SendMessage(socket_.get(), kick.header);
}

bool Agent::IsStopped() const {
  char state = files_.State(0);
  return state == 'T' || state == 't';
}

void Agent::Record(const CaptureRequest& request, Recording* recording) {
  stackd_ring_header* header = ring_->header();
  RingReader reader(ring_.get());
  int64_t begin_ns = MonotonicNs();
  int64_t look_for_stop_ns = begin_ns + std::min(kLookForStopNs, (request.deadline_ns - begin_ns) / 4);
  bool looked_for_stop = false;
  for (;;) {
    // In this order: what was committed before these were set is drained after they were seen.
    uint32_t doorbell = reader.Doorbell();
    bool connected_before = connected();
    bool done = __atomic_load_n(&header->done_seq, __ATOMIC_ACQUIRE) == seq_;
    reader.Drain(recording);
    if (__atomic_load_n(&header->begun_seq, __ATOMIC_ACQUIRE) == seq_) {
      recording->listed = __atomic_load_n(&header->threads_listed, __ATOMIC_RELAXED);
    }
    recording->done = done;
    recording->ended = !connected_before;
    if (done || !connected_before) return;
    int64_t now_ns = MonotonicNs();
    if (now_ns >= request.deadline_ns) return;
    bool begun = __atomic_load_n(&header->begun_seq, __ATOMIC_RELAXED) == seq_;
    if (!begun && !looked_for_stop && now_ns >= look_for_stop_ns) {
      looked_for_stop = true;
      recording->stopped = IsStopped();
      if (recording->stopped) return;
    }
    reader.Wait(doorbell, kPollNs);
  }
}

void Agent::AccountForTheRest(int64_t deadline_ns, Recording* recording) {
  for (int32_t tid : files_.Tids()) {
    if (recording->Has(static_cast<uint32_t>(tid))) continue;
    ThreadCapture* thread = recording->Add(static_cast<uint32_t>(tid));
    if (thread == nullptr) return;
    thread->status = ThreadStatus::kTimedOut;
    // Of thousands, procfs would take longer than the caller has.
    if (MonotonicNs() >= deadline_ns) continue;
    thread->name = files_.ThreadName(tid);
    thread->kernel_state = files_.State(tid);
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
}

void Agent::CountDrops() {
  std::atomic<int64_t>* const totals[] = {&counters_->ring_dropped_no_slot, &counters_->ring_dropped_late,
                                          &counters_->ring_dropped_agent_fault};
  for (size_t reason = 0; reason < std::size(totals); reason++) {
    uint64_t now = __atomic_load_n(&ring_->header()->dropped[reason], __ATOMIC_RELAXED);
    // A count that shrinks is a process's doing.
    if (now > dropped_seen_[reason])
      *totals[reason] += static_cast<int64_t>(std::min<uint64_t>(now - dropped_seen_[reason], 1u << 20));
    dropped_seen_[reason] = now;
  }
}

Result<std::shared_ptr<Capture>> Agent::CaptureThreads(CaptureRequest request) {
  request.deadline_ns = std::min(request.deadline_ns, MonotonicNs() + kMaxCaptureNs);
  std::unique_lock lock(capture_mutex_, std::defer_lock);
  auto wait = std::chrono::nanoseconds(std::max<int64_t>(0, request.deadline_ns - MonotonicNs()));
  if (!lock.try_lock_for(wait)) {
    return Error(Code::kDeadlineExceeded, "another dump of processes/" + id_ + " was running until the deadline");
  }
  counters_->captures++;
  auto capture = std::make_shared<Capture>();
  capture->trigger = request.trigger;
  capture->begin_wall_ns = WallNs();
  capture->dump_signal = dump_signal_;
  int64_t load_deadline_ns = std::min(request.deadline_ns, MonotonicNs() + kLoadModulesNs);
  if (map_ == nullptr && !IsStopped()) LoadModules(load_deadline_ns, &capture->notes);

  int64_t begin_ns = MonotonicNs();
  SendCommand(request);
  Recording recording(seq_, counters_);
  Record(request, &recording);
  __atomic_store_n(&ring_->header()->cancel_seq, seq_, __ATOMIC_RELAXED);
  capture->duration_ns = MonotonicNs() - begin_ns;

  size_t answered = recording.size();
  if (!recording.done && !recording.ended) AccountForTheRest(request.deadline_ns, &recording);
  CountDrops();
  uint32_t generation = __atomic_load_n(&ring_->header()->maps_generation, __ATOMIC_ACQUIRE);
  if (!recording.ended && !recording.stopped && generation != map_generation_) {
    LoadModules(std::max(request.deadline_ns, MonotonicNs() + 10 * kNsPerMs), &capture->notes);
    map_generation_ = generation;
  }
  capture->map = map_ != nullptr ? map_ : std::make_shared<const AddressMap>(std::vector<Mapping>{});
  capture->threads = recording.TakeThreads();
  capture->partial = !recording.done || recording.listed > capture->threads.size();
  if (recording.ended) {
    capture->notes.push_back("the process ended during the dump: " + Number(static_cast<int64_t>(answered)) + " of " +
                             Number(std::max<int64_t>(recording.listed, static_cast<int64_t>(answered))) +
                             " threads had answered");
  } else if (recording.stopped) {
    capture->notes.push_back("the process is stopped: it answers after SIGCONT");
  } else if (!recording.done) {
    capture->notes.push_back(
        "the process did not finish the dump by the deadline: " + Number(static_cast<int64_t>(answered)) + " of " +
        Number(static_cast<int64_t>(capture->threads.size())) + " threads had answered");
  } else if (recording.listed > capture->threads.size()) {
    capture->notes.push_back(Number(recording.listed - static_cast<int64_t>(capture->threads.size())) +
                             " threads are missing: the ring had no room for their statuses");
  }
  recording.AddNotes(&capture->notes);
  thread_count_.store(static_cast<int32_t>(capture->threads.size()));
  capture->process = Describe();
  return capture;
}

}  // namespace stackd
