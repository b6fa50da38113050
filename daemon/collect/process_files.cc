#include "daemon/collect/process_files.h"

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

#include "daemon/base/text.h"
#include "daemon/collect/open_below.h"

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

}  // namespace

bool ProcessFiles::SetMemory(Fd* fd) { return Keep(fd, S_IFREG, &mem_); }
bool ProcessFiles::SetMaps(Fd* fd) { return Keep(fd, S_IFREG, &maps_); }
bool ProcessFiles::SetFolder(Fd* fd) { return Keep(fd, S_IFDIR, &folder_); }

// The kernel keeps the inode of a folder of procfs as long as somebody has it open.
bool ProcessFiles::IsSameProcess(const ProcessFiles& other) const {
  struct stat mine, theirs;
  if (!folder_.valid() || !other.folder_.valid()) return false;
  if (fstat(folder_.get(), &mine) != 0 || fstat(other.folder_.get(), &theirs) != 0) return false;
  return mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

// "NSpid:" has a number for each namespace from that of procfs inward.
bool ProcessFiles::HasOnePid() const {
  const std::string text = ReadInFolder("status");
  constexpr std::string_view kKey = "\nNSpid:\t";
  const size_t at = text.find(kKey);
  if (at == std::string::npos) return false;
  const size_t begin = at + kKey.size(), end = text.find('\n', begin);
  return end != std::string::npos && text.find('\t', begin) > end;
}

bool ProcessFiles::CountsThreadsAs(const ProcessFiles& other) const {
  struct stat mine, theirs;
  if (!folder_.valid() || !other.folder_.valid()) return false;
  if (fstat(folder_.get(), &mine) != 0 || fstat(other.folder_.get(), &theirs) != 0) return false;
  return mine.st_dev == theirs.st_dev && HasOnePid() && other.HasOnePid();
}

ssize_t ProcessFiles::ReadAt(uint64_t avma, uint8_t* bytes, uint64_t size_bytes) const {
  const ssize_t got = pread64(mem_.get(), bytes, size_bytes, static_cast<off64_t>(avma));
  if (got > 0) memory_read_bytes_->fetch_add(got);
  return got;
}

Result<std::vector<uint8_t>> ProcessFiles::ReadMemory(uint64_t avma, uint64_t size_bytes) const {
  if (!mem_.valid()) return Error(Code::kFailedPrecondition, "the process could not open its own memory");
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
  if (!mem_.valid()) return 0;
  const ssize_t got = ReadAt(avma, bytes.data(), bytes.size());
  return got > 0 ? static_cast<size_t>(got) : 0;
}

// The kernel ends a read with 0 bytes if there is no memory to read from, and fails it at an address without memory.
bool ProcessFiles::HasNoMemoryLeft() const {
  char byte;
  return mem_.valid() && pread64(mem_.get(), &byte, sizeof(byte), 0) == 0;
}

Result<std::string> ProcessFiles::ReadMaps() const {
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

Fd ProcessFiles::OpenMotion(const Fd& tasks, int32_t tid) {
  char path[32];
  snprintf(path, sizeof(path), "%d/schedstat", tid);
  return OpenBelow(tasks, path, O_RDONLY);
}

std::string ProcessFiles::ReadInFolder(const std::string& path) const {
  const Fd fd = OpenBelow(folder_, path.c_str(), O_RDONLY);
  if (!fd.valid()) return {};
  char text[4096];
  ssize_t got = read(fd.get(), text, sizeof(text));
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : std::string();
}

char ProcessFiles::State(int32_t tid) const {
  std::string text = ReadInFolder(tid == 0 ? "stat" : "task/" + std::to_string(tid) + "/stat");
  // "tid (name) S ...", and the name may hold anything.
  size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() ? text[end + 2] : 0;
}

uint64_t ProcessFiles::StartTicks() const {
  const std::string text = ReadInFolder("stat");
  constexpr int kStateField = 3, kStartField = 22;
  size_t at = text.rfind(')');
  for (int field = kStateField; field <= kStartField && at != std::string::npos; field++) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : strtoull(text.c_str() + at, nullptr, 10);
}

namespace {

// A set of signals in the text of a status file; `key` with a line break before it: the name of the process stands above,
// and cannot hold one.
std::optional<uint64_t> SignalsIn(const std::string& status, std::string_view key) {
  const size_t at = status.find(key);
  if (at == std::string::npos) return std::nullopt;
  return strtoull(status.c_str() + at + key.size(), nullptr, 16);
}

bool HasSignal(std::optional<uint64_t> signals, int number) { return signals && (*signals >> (number - 1) & 1) != 0; }

}  // namespace

std::optional<bool> ProcessFiles::HasPendingSigterm() const {
  const auto pending = SignalsIn(ReadInFolder("status"), "\nShdPnd:");
  if (!pending) return std::nullopt;
  return HasSignal(pending, SIGTERM);
}

bool ProcessFiles::HoldsBack(int signal_number) const {
  if (signal_number <= 0 || signal_number > 64) return false;
  const std::string status = ReadInFolder("status");
  return HasSignal(SignalsIn(status, "\nShdPnd:"), signal_number) &&
         HasSignal(SignalsIn(status, "\nSigBlk:"), signal_number);
}

int32_t ProcessFiles::PidInOwnProcfs() const {
  struct stat its, own;
  if (!folder_.valid() || fstat(folder_.get(), &its) != 0 || stat("/proc/self", &own) != 0) return 0;
  if (its.st_dev != own.st_dev) return 0;
  const std::string status = ReadInFolder("status");
  constexpr std::string_view kKey = "\nTgid:\t";
  const size_t at = status.find(kKey);
  return at == std::string::npos ? 0 : static_cast<int32_t>(strtol(status.c_str() + at + kKey.size(), nullptr, 10));
}

std::optional<uint64_t> ProcessFiles::InodeOf(int32_t fd) const {
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
