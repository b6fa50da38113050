#include "daemon/process/process_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <memory>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/process/open_below.h"
#include "daemon/ring/record.h"

namespace stackd {
namespace {

constexpr size_t kMaxMapsBytes = 16u << 20;
constexpr size_t kMaxTids = 100'000;

// fstatfs asks the server of a FUSE or network mount and waits for its answer. Those have file handles, which the kernel
// makes by itself; procfs has none.
bool MayHaveAServer(int fd) {
  alignas(file_handle) char space[sizeof(file_handle) + MAX_HANDLE_SZ];
  auto* handle = reinterpret_cast<file_handle*>(space);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount_id;
  // Where a sandbox forbids the question, the mounts of processes are its business.
  return name_to_handle_at(fd, "", handle, &mount_id, AT_EMPTY_PATH) == 0 || errno == EOVERFLOW;
}

bool Keep(Fd* fd, mode_t type, Fd* out) {
  struct statfs file_system;
  struct stat status;
  if (!fd->valid() || MayHaveAServer(fd->get())) return false;
  if (fstatfs(fd->get(), &file_system) != 0 || file_system.f_type != PROC_SUPER_MAGIC) return false;
  if (fstat(fd->get(), &status) != 0 || (status.st_mode & S_IFMT) != type) return false;
  *out = std::move(*fd);
  return true;
}

std::string ReadText(const Fd& file) {
  if (!file.valid()) return {};
  char text[4096];
  const ssize_t got = pread(file.get(), text, sizeof(text), 0);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : std::string();
}

// The state in a stat file, "tid (name) S ...": the name may hold anything.
char StateIn(const std::string& stat) {
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : 0;
}

// The field of a stat file with this number, in proc(5); 0: there is none.
uint64_t NumberInStat(const std::string& stat, int number) {
  constexpr int kStateField = 3;
  size_t at = stat.rfind(')');
  for (int field = kStateField; field <= number && at != std::string::npos; field++) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : strtoull(stat.c_str() + at, nullptr, 10);
}

// In a status file; `key` with a line break before it: the name of the process stands above, and cannot hold one.
std::optional<uint64_t> NumberAfter(const std::string& status, std::string_view key, int base = 10) {
  const size_t at = status.find(key);
  if (at == std::string::npos) return std::nullopt;
  return strtoull(status.c_str() + at + key.size(), nullptr, base);
}

// What a schedstat file says of the thread `tid`; nullopt: it is empty.
std::optional<ThreadSchedStat> SchedStatIn(const std::string& schedstat, int32_t tid) {
  if (schedstat.empty()) return std::nullopt;
  ThreadSchedStat sched_stat{.tid = tid};
  char* at = nullptr;
  sched_stat.run_ns = strtoll(schedstat.c_str(), &at, 10);
  sched_stat.runnable_ns = strtoll(at, &at, 10);
  sched_stat.run_count = strtoull(at, &at, 10);
  return sched_stat;
}

}  // namespace

bool ProcessFiles::SetMemory(Fd* fd) {
  if (has_memory() || !Keep(fd, S_IFREG, &memory_->fd)) return false;
  memory_->is_there.store(true);
  return true;
}
bool ProcessFiles::SetMaps(Fd* fd) { return Keep(fd, S_IFREG, &maps_); }

void ProcessFiles::SetImage(ReadImage read, std::string maps) {
  memory_->read_image = std::move(read);
  memory_->image_maps = std::move(maps);
  memory_->is_there.store(true);
}

bool ProcessFiles::SetFolder(Fd* fd) {
  if (!Keep(fd, S_IFDIR, &folder_)) return false;
  stat_ = OpenBelow(folder_, "stat", O_RDONLY);
  status_ = OpenBelow(folder_, "status", O_RDONLY);
  schedstat_ = OpenBelow(folder_, "schedstat", O_RDONLY);
  return true;
}

bool ProcessFiles::SetStat(Fd* stat) { return Keep(stat, S_IFREG, &stat_); }

bool ProcessFiles::SetStatus(Fd* stat, Fd* status, Fd* schedstat) {
  return Keep(stat, S_IFREG, &stat_) && Keep(status, S_IFREG, &status_) && Keep(schedstat, S_IFREG, &schedstat_);
}

// Compares inodes: the kernel keeps the inode of a file of procfs as long as it is open.
bool ProcessFiles::IsSameProcess(const ProcessFiles& other) const {
  struct stat mine, theirs;
  if (!stat_.valid() || !other.stat_.valid()) return false;
  if (fstat(stat_.get(), &mine) != 0 || fstat(other.stat_.get(), &theirs) != 0) return false;
  return mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

// "NSpid:" has a number for each namespace from that of procfs inward.
bool ProcessFiles::HasOnePid() const {
  const std::string text = ReadStatus();
  constexpr std::string_view kKey = "\nNSpid:\t";
  const size_t at = text.find(kKey);
  if (at == std::string::npos) return false;
  const size_t begin = at + kKey.size(), end = text.find('\n', begin);
  return end != std::string::npos && text.find('\t', begin) > end;
}

bool ProcessFiles::CountsThreadsAs(const ProcessFiles& other) const {
  struct stat mine, theirs;
  if (!stat_.valid() || !other.stat_.valid()) return false;
  if (fstat(stat_.get(), &mine) != 0 || fstat(other.stat_.get(), &theirs) != 0) return false;
  return mine.st_dev == theirs.st_dev && HasOnePid() && other.HasOnePid();
}

ssize_t ProcessFiles::ReadAt(uint64_t avma, uint8_t* bytes, uint64_t size_bytes) const {
  int64_t got;
  if (is_image()) {
    got = memory_->read_image(avma, {bytes, size_bytes});
    if (got < 0) errno = static_cast<int>(-std::exchange(got, -1));
  } else {
    got = pread64(memory_->fd.get(), bytes, size_bytes, static_cast<off64_t>(avma));
  }
  if (got > 0) memory_->read_bytes.fetch_add(got);
  return got;
}

Result<std::vector<uint8_t>> ProcessFiles::ReadMemory(uint64_t avma, uint64_t size_bytes) const {
  if (!has_memory()) return Error(Code::kFailedPrecondition, "the process could not open its own memory");
  std::vector<uint8_t> bytes(size_bytes);
  for (uint64_t done = 0; done < size_bytes;) {
    const ssize_t got = ReadAt(avma + done, bytes.data() + done, size_bytes - done);
    if (got < 0) return Error(Code::kUnavailable, std::string("reading its memory: ") + strerror(errno));
    if (got == 0) return Error(Code::kUnavailable, "the process has ended");
    done += static_cast<uint64_t>(got);
  }
  return bytes;
}

size_t ProcessFiles::ReadSome(uint64_t avma, std::span<uint8_t> bytes) const {
  if (!has_memory()) return 0;
  const ssize_t got = ReadAt(avma, bytes.data(), bytes.size());
  return got > 0 ? static_cast<size_t>(got) : 0;
}

// The kernel ends a read with 0 bytes if there is no memory to read from, and fails it at an address without memory.
bool ProcessFiles::HasNoMemoryLeft() const {
  char byte;
  return has_memory() && !is_image() && pread64(memory_->fd.get(), &byte, sizeof(byte), 0) == 0;
}

Result<std::string> ProcessFiles::ReadMaps() const {
  if (is_image()) return memory_->image_maps;
  if (!maps_.valid()) return Error(Code::kFailedPrecondition, "the process could not open its own maps");
  std::string text;
  while (text.size() < kMaxMapsBytes) {
    size_t at = text.size();
    text.resize(at + (64u << 10));
    ssize_t got = pread(maps_.get(), text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (got < 0) return Error(Code::kUnavailable, std::string("reading its maps: ") + strerror(errno));
    text.resize(at + static_cast<size_t>(got));
    if (got == 0) break;
  }
  // Half a line would be another mapping.
  text.resize(text.rfind('\n') + 1);
  if (text.empty()) return Error(Code::kUnavailable, "the process has ended");
  return text;
}

std::vector<int32_t> ProcessFiles::Tids() const {
  std::vector<int32_t> tids;
  Fd tasks = OpenBelow(folder_, "task", O_RDONLY | O_DIRECTORY);
  std::unique_ptr<DIR, int (*)(DIR*)> folder(tasks.valid() ? fdopendir(tasks.get()) : nullptr, closedir);
  if (folder == nullptr) return tids;
  tasks.Release();
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.' && tids.size() < kMaxTids) tids.push_back(static_cast<int32_t>(atol(entry->d_name)));
  }
  return tids;
}

Fd ProcessFiles::OpenTasks() const { return OpenBelow(folder_, "task", O_PATH | O_DIRECTORY); }

std::optional<ThreadSchedStat> ProcessFiles::SchedStatOf(int32_t tid) const {
  return SchedStatIn(ReadInFolder("task/" + std::to_string(tid) + "/schedstat"), tid);
}

std::string ProcessFiles::ReadInFolder(const std::string& path) const {
  return ReadText(OpenBelow(folder_, path.c_str(), O_RDONLY));
}

std::string ProcessFiles::ReadStat() const { return ReadText(stat_); }
std::string ProcessFiles::ReadStatus() const { return ReadText(status_); }

char ProcessFiles::State() const { return StateIn(ReadStat()); }

int32_t ProcessFiles::ThreadCount() const {
  return static_cast<int32_t>(NumberAfter(ReadStatus(), "\nThreads:").value_or(0));
}

std::optional<ThreadSchedStat> ProcessFiles::FirstSchedStat(int32_t tid) const {
  return SchedStatIn(ReadText(schedstat_), tid);
}

std::optional<int64_t> ProcessFiles::RunTicks() const {
  const std::string stat = ReadStat();
  if (stat.empty()) return std::nullopt;
  constexpr int kUserField = 14, kSystemField = 15;
  return static_cast<int64_t>(NumberInStat(stat, kUserField) + NumberInStat(stat, kSystemField));
}

int32_t ProcessFiles::ParentPid() const {
  constexpr int kParentField = 4;
  return static_cast<int32_t>(NumberInStat(ReadStat(), kParentField));
}

std::optional<ProcessFiles::ThreadLook> ProcessFiles::LookAt(int32_t tid) const {
  if (folder_.valid()) {
    const auto sched_stat = SchedStatOf(tid);
    const char state = StateIn(ReadInFolder("task/" + std::to_string(tid) + "/stat"));
    const ThreadLook look{.state = state, .run_count = sched_stat ? sched_stat->run_count : 0};
    return look.state == 0 ? std::nullopt : std::optional(look);
  }
  const auto answer = ask_ ? ask_({.kind = STACKD_ASK_THREAD, .tid = tid}) : std::nullopt;
  if (!answer) return std::nullopt;
  return ThreadLook{.state = StateLetter(static_cast<char>(answer->count)), .run_count = answer->number};
}

uint64_t ProcessFiles::StartTicks() const {
  constexpr int kStartField = 22;
  return NumberInStat(ReadStat(), kStartField);
}

namespace {

std::optional<uint64_t> SignalsIn(const std::string& status, std::string_view key) { return NumberAfter(status, key, 16); }

bool HasSignal(std::optional<uint64_t> signals, int number) { return signals && (*signals >> (number - 1) & 1) != 0; }

}  // namespace

std::optional<bool> ProcessFiles::HasPendingSigterm() const {
  const auto pending = SignalsIn(ReadStatus(), "\nShdPnd:");
  if (!pending) return std::nullopt;
  return HasSignal(pending, SIGTERM);
}

bool ProcessFiles::HoldsBack(int signal_number) const {
  if (signal_number <= 0 || signal_number > 64) return false;
  const std::string status = ReadStatus();
  return HasSignal(SignalsIn(status, "\nShdPnd:"), signal_number) &&
         HasSignal(SignalsIn(status, "\nSigBlk:"), signal_number);
}

int32_t ProcessFiles::PidInOwnProcfs() const {
  struct stat its, own;
  if (!stat_.valid() || fstat(stat_.get(), &its) != 0 || stat("/proc/self", &own) != 0) return 0;
  if (its.st_dev != own.st_dev) return 0;
  const std::string status = ReadStatus();
  constexpr std::string_view kKey = "\nTgid:\t";
  const size_t at = status.find(kKey);
  return at == std::string::npos ? 0 : static_cast<int32_t>(strtol(status.c_str() + at + kKey.size(), nullptr, 10));
}

std::optional<uint64_t> ProcessFiles::InodeOf(int32_t tid, int32_t fd) const {
  if (!folder_.valid()) {
    const stackd_wait_question question{.kind = STACKD_ASK_LOCKED_FILE, .tid = tid, .avma = static_cast<uint64_t>(fd)};
    const auto answer = ask_ ? ask_(question) : std::nullopt;
    return answer ? std::optional(answer->number) : std::nullopt;
  }
  const std::string text = ReadInFolder("fdinfo/" + std::to_string(fd));
  constexpr std::string_view kKey = "\nino:\t";
  const size_t at = text.find(kKey);
  if (at == std::string::npos) return std::nullopt;
  return strtoull(text.c_str() + at + kKey.size(), nullptr, 10);
}

std::string ProcessFiles::ThreadName(int32_t tid) const {
  std::string text = ReadInFolder("task/" + std::to_string(tid) + "/comm");
  return ToValidUtf8(text.substr(0, text.find('\n')));
}

}  // namespace stackd
