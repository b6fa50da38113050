#include "daemon/collect/agent_process.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/modules/address_map.h"
#include "daemon/process/process_description.h"

namespace stackd {
namespace {

// A process without threads that has not begun by then may block the signal that wakes it.
constexpr int64_t kWakesNs = 200 * kNsPerMs;
constexpr useconds_t kLookForAwakeUs = 200;

// The process chose the file: no other kind is written to.
bool IsDatagramSocket(const Fd& fd) {
  int type = 0;
  socklen_t type_bytes = sizeof(type);
  sockaddr_storage address{};
  socklen_t address_bytes = sizeof(address);
  return getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && type == SOCK_DGRAM &&
         getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes) == 0 && address.ss_family == AF_UNIX;
}

constexpr int64_t kAskThreadNs = 50 * kNsPerMs;
constexpr std::string_view kSampleLimit = "what its threads sleep in cannot be read";

ProcessFiles::Ask AskerOf(std::shared_ptr<AgentQuestions> questions) {
  return [questions = std::move(questions)](const stackd_wait_question& question) -> std::optional<stackd_wait_answer> {
    const auto answers = questions->AskWaits(std::span(&question, 1), MonotonicNs() + kAskThreadNs);
    return answers.front() && answers.front()->error == 0 ? answers.front() : std::nullopt;
  };
}

}  // namespace

bool AgentWaker::StaysAsleep() const {
  if (is_awake() || is_filtered()) return false;
  std::lock_guard lock(mutex_);
  return files_->HoldsBack(wake_signal_);
}

uint64_t AgentWaker::sigterm_count_avma() const {
  std::lock_guard lock(mutex_);
  return sigterm_count_avma_;
}

void AgentWaker::Wake() {
  if (is_awake() || is_filtered()) return;
  std::lock_guard lock(mutex_);
  const char byte = 0;
  if (bell_.valid()) send(bell_.get(), &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void AgentWaker::AwaitAwake(int64_t deadline_ns) const {
  deadline_ns = std::min(deadline_ns, MonotonicNs() + kWakesNs);
  while (!is_awake() && !is_filtered() && !is_closed_.load() && MonotonicNs() < deadline_ns) usleep(kLookForAwakeUs);
}

void AgentWaker::OnBell(ReceivedMessage* message) {
  const auto bell = message->As<stackd_bell>();
  if (bell && !message->fds.empty() && IsDatagramSocket(message->fds.front())) {
    std::lock_guard lock(mutex_);
    bell_ = std::move(message->fds.front());
    sigterm_count_avma_ = bell->sigterm_count_avma;
    wake_signal_ = bell->signal;
  }
  is_awake_.store(false);
}

AgentProcess::AgentProcess(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessDescription description,
                           ProcessFiles files)
    : socket_(std::move(socket)),
      peer_uid_(peer_uid),
      id_(description.id),
      first_tid_(hello.pid),
      dump_signal_(hello.dump_signal),
      is_goroutine_((hello.flags & STACKD_HELLO_GOROUTINE) != 0),
      shares_as_needed_((hello.flags & STACKD_HELLO_SHARES_AS_NEEDED) != 0),
      files_(std::make_shared<ProcessFiles>(std::move(files))),
      memory_(std::make_shared<const MemoryReader>(files_)),
      questions_(std::make_shared<AgentQuestions>(socket_.get())),
      waker_(files_.get(), (hello.flags & STACKD_HELLO_HAS_BELL) != 0),
      description_(std::move(description)) {
  description_.connect_wall_ns = WallNs();
  if (!is_goroutine_) files_->AskBy(AskerOf(questions_));
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

bool AgentProcess::IsStopped() const {
  const char state = files_->State();
  return state == 'T' || state == 't';
}

char AgentProcess::StateOf(int32_t tid) const {
  if (tid == 0 || tid == first_tid_) return files_->State();
  const auto look = files_->LookAt(tid);
  return look ? look->state : 0;
}

int32_t AgentProcess::PidForDaemon() const {
  if (const int32_t pid = files_->PidInOwnProcfs(); pid != 0) return pid;
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  return getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0 ? peer.pid : 0;
}

bool AgentProcess::TellsWaits() const {
  const bool may_be_asked = !is_goroutine_ && !files_->has_memory();
  const Share level = share();
  return may_be_asked && (level == Share::kStacks || level == Share::kNames);
}

bool AgentProcess::HasThreadAndMemory(int32_t tid, const AgentProcess& waiter, const SharedMemory& memory,
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

ProcessDescription AgentProcess::Describe() const {
  int32_t threads = thread_count_.load();
  if (threads == 0) threads = files_->ThreadCount();
  std::lock_guard lock(description_mutex_);
  ProcessDescription description = description_;
  description.thread_count = threads;
  return description;
}

Share AgentProcess::share() const {
  std::lock_guard lock(description_mutex_);
  return description_.share;
}

std::vector<int64_t> AgentProcess::ReadProcessSchedStats() const {
  const auto ticks = files_->RunTicks();
  const auto first = FirstSchedStat();
  if (!ticks || !first) return {};
  return {*ticks, first->run_ns, static_cast<int64_t>(first->run_count)};
}

void AgentProcess::RememberThreads(const std::set<int32_t>& tids) {
  std::lock_guard lock(threads_mutex_);
  std::erase_if(thread_names_, [&](const auto& entry) { return !tids.contains(entry.first); });
  for (const int32_t tid : tids) thread_names_.try_emplace(tid);
}

void AgentProcess::RememberThreads(const std::vector<ThreadCapture>& threads) {
  std::lock_guard lock(threads_mutex_);
  thread_names_.clear();
  for (const ThreadCapture& thread : threads) {
    if (thread.status != ThreadStatus::kExited) thread_names_[thread.tid] = thread.name;
  }
}

std::map<int32_t, std::string> AgentProcess::KnownThreads() const {
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

void AgentProcess::SetSampleLimit(const std::string& why) {
  SetLimit(
      kSampleLimit,
      why.empty() ? "" : std::string(kSampleLimit) + " (" + why + "): deadlocks and standstills of it are not noticed");
}

void AgentProcess::SetLimit(std::string_view limit, const std::string& text) {
  std::lock_guard lock(description_mutex_);
  std::erase_if(description_.limits, [&](const std::string& other) { return other.starts_with(limit); });
  if (!text.empty()) description_.limits.push_back(text);
}

void AgentProcess::OnName(const stackd_name& name) {
  std::lock_guard lock(description_mutex_);
  description_.display_name = FieldText(name.name);
  if (description_.display_name.empty()) {
    description_.display_name = DefaultName(description_.argv0, description_.executable);
  }
}

void AgentProcess::OnMemory(ReceivedMessage* message) {
  if (!shares_as_needed_ || message->fds.empty() || !files_->SetMemory(&message->fds.front())) return;
  std::lock_guard lock(description_mutex_);
  description_.share = Share::kMemory;
}

void AgentProcess::OnFiltered(bool is_filtered) {
  waker_.SetFiltered(is_filtered);
  SetLimit(kFilteredLimit, is_filtered ? std::string(kFilteredLimit) : "");
}

void AgentProcess::OnClosed() {
  closed_ns_.store(MonotonicNs());
  connected_.store(false);
  waker_.OnClosed();
  questions_->OnClosed();
}

}  // namespace stackd
