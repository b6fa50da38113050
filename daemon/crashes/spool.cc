#include "daemon/crashes/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr size_t kMaxNames = 65'536;
constexpr size_t kMaxSetAside = 16;
constexpr std::string_view kSetAsideSuffix = ".bad";
// A file can be seen before the kernel counts its creator as a writer.
constexpr int64_t kSurelyOpenedNs = 2 * kNsPerSecond;
// Ages that decide where the kernel cannot tell whether a file is open. The agent writes for milliseconds, and a living
// process comes back for a new file within seconds.
constexpr int64_t kSurelyWrittenNs = 30 * kNsPerSecond;
constexpr int64_t kSurelyAbandonedNs = 600 * kNsPerSecond;

std::unexpected<Status> Garbage(const char* what) { return Error(Code::kDataLoss, what); }

// Takes bytes from the front of a file that may be shorter than it claims.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::optional<std::string_view> Take(uint64_t size_bytes) {
    if (size_bytes > rest_.size()) return std::nullopt;
    std::string_view taken = rest_.substr(0, size_bytes);
    rest_.remove_prefix(size_bytes);
    return taken;
  }
  template <typename T>
  bool Take(T* value) {
    auto taken = Take(sizeof(T));
    if (taken) memcpy(value, taken->data(), sizeof(T));
    return taken.has_value();
  }

 private:
  std::string_view rest_;
};

// The slots without the headers of all but the first, as the parsers of records take them.
std::string Chain(std::string_view slots) {
  std::string chain(slots.substr(0, STACKD_SLOT_BYTES));
  for (size_t at = STACKD_SLOT_BYTES; at < slots.size(); at += STACKD_SLOT_BYTES) {
    chain += slots.substr(at + sizeof(stackd_slot_header), STACKD_SLOT_BYTES - sizeof(stackd_slot_header));
  }
  return chain;
}

bool TakeImages(uint32_t count, Reader* reader, std::vector<SpoolImage>* images) {
  for (uint32_t i = 0; i < count; i++) {
    stackd_spool_image header;
    if (!reader->Take(&header) || header.size_bytes > STACKD_SPOOL_IMAGE_BYTES) return false;
    auto bytes = reader->Take(header.size_bytes);
    if (!bytes) return false;
    images->push_back({header.address, std::string(*bytes)});
  }
  return true;
}

std::vector<std::string> NamesIn(int folder_fd) {
  std::vector<std::string> names;
  int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return names;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd), closedir);
  if (folder == nullptr) {
    close(fd);
    return names;
  }
  while (const dirent* entry = readdir(folder.get())) {
    std::string_view name(entry->d_name);
    if (name != "." && name != ".." && names.size() < kMaxNames) names.emplace_back(name);
  }
  return names;
}

enum class Writers { kNone, kSome, kUnknown };

// Asks for a read lease: the kernel grants one only on a file that no process, in any namespace, has open for writing.
Writers WritersOf(int fd) {
  if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return Writers::kNone;
  }
  return errno == EAGAIN ? Writers::kSome : Writers::kUnknown;
}

bool InUse(Writers writers, const struct stat& status) {
  const bool is_empty = status.st_size == 0;
  const int64_t age_ns = WallNs() - (status.st_mtim.tv_sec * kNsPerSecond + status.st_mtim.tv_nsec);
  switch (writers) {
    case Writers::kNone:
      return is_empty && age_ns < kSurelyOpenedNs;
    case Writers::kSome:
      return true;
    case Writers::kUnknown:
      return age_ns < (is_empty ? kSurelyAbandonedNs : kSurelyWrittenNs);
  }
  return true;
}

// Where other users may write to `dir` anyway, they may leave crashes here too: in a pod each container has a user of its
// own. They see no crash of another user: the names are random, and only the owner can list them.
mode_t FolderMode(const std::string& dir) {
  struct stat status;
  const bool is_shared = stat(dir.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) != 0;
  return is_shared ? S_ISVTX | 0733 : 0700;
}

// Moves aside a folder that an agent of another user made: it is closed to the daemon, and would keep all crashes from it.
// Returns what to tell the operator; "" if there is nothing.
std::string SetAsideIfForeign(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || status.st_uid == geteuid() || geteuid() == 0) return "";
  const std::string uid = std::to_string(status.st_uid);
  const std::string aside = path + "." + uid + "." + std::to_string(WallNs());
  if (rename(path.c_str(), aside.c_str()) != 0) return "";  // Open then reports that the folder cannot be used
  return "the folder " + path + " was made by a process of uid " + uid + " and is closed to stackd: it is " + aside +
         " now, and crashes in it are not shown; a stackd that runs before the first process, or \"stackd install-agent\", "
         "makes the folder for all";
}

}  // namespace

Result<SpoolCrash> ParseSpoolFile(std::string_view bytes) {
  Reader reader(bytes);
  stackd_spool_header header;
  if (!reader.Take(&header)) return Error(Code::kUnavailable, "it ends within its header");
  if (header.magic == 0) return Error(Code::kUnavailable, "its writer was ended, or had no space left");
  if (header.magic != STACKD_SPOOL_MAGIC) return Garbage("it does not begin as a crash");
  if (header.abi_version != STACKD_ABI_VERSION || header.header_bytes != sizeof(header)) {
    return Garbage("it is of another version of the agent");
  }
  if (header.slot_count == 0 || header.slot_count > STACKD_MAX_SLOTS) return Garbage("it has no record, or too many");
  if (header.image_count > STACKD_SPOOL_MAX_IMAGES) return Garbage("it has too many images");
  if (header.process.pid <= 0) return Garbage("it is of no process");
  auto slots = reader.Take(uint64_t{header.slot_count} * STACKD_SLOT_BYTES);
  auto maps = reader.Take(header.maps_bytes);
  SpoolCrash crash;
  if (!slots || !maps || !TakeImages(header.image_count, &reader, &crash.images)) {
    return Garbage("it is shorter than it says");
  }
  auto record = ParseCrash(Chain(*slots));
  if (!record) return Garbage("its record is not of a crash");
  crash.process = header.process;
  crash.wall_ns = static_cast<int64_t>(std::min<uint64_t>(header.wall_ns, static_cast<uint64_t>(WallNs())));
  crash.record = std::move(*record);
  crash.maps = *maps;
  return crash;
}

Result<std::unique_ptr<Spool>> Spool::Open(const std::string& dir) {
  std::string path = dir + "/" STACKD_SPOOL_FOLDER;
  std::string notice = SetAsideIfForeign(path);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error(Code::kFailedPrecondition, "cannot make the folder " + path + ": " + strerror(errno));
  }
  Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status;
  if (!folder.valid() || fstat(folder.get(), &status) != 0) {
    return Error(Code::kFailedPrecondition, "cannot open the folder " + path + ": " + strerror(errno));
  }
  // An agent of another user may have made it, when there was no daemon.
  bool ours = status.st_uid == geteuid() || fchown(folder.get(), geteuid(), getegid()) == 0;
  if (!ours || fchmod(folder.get(), FolderMode(dir) | (status.st_mode & S_ISGID)) != 0) {
    return Error(Code::kFailedPrecondition, "the folder " + path + " belongs to uid " + std::to_string(status.st_uid) +
                                                ", who could put anything there: remove it");
  }
  return std::unique_ptr<Spool>(new Spool(std::move(folder), std::move(notice)));
}

Result<Spool::NewFile> Spool::Create(const Owner& owner) const {
  uint64_t random;
  if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
    return Error(Code::kUnavailable, std::string("no random name for a spool file: ") + strerror(errno));
  }
  char tail[64];
  snprintf(tail, sizeof(tail), "_%u_%016llx" STACKD_SPOOL_SUFFIX, owner.uid, static_cast<unsigned long long>(random));
  std::string name = owner.process_id + tail;
  Fd fd(openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return Error(Code::kUnavailable, std::string("cannot make a spool file: ") + strerror(errno));
  return NewFile{std::move(fd), std::move(name)};
}

std::optional<Spool::Owner> Spool::OwnerOf(const std::string& name) {
  size_t first = name.find('_');
  size_t second = name.find('_', first + 1);
  if (first == std::string::npos || second == std::string::npos) return std::nullopt;
  Owner owner{name.substr(0, first), 0};
  auto [end, error] = std::from_chars(name.data() + first + 1, name.data() + second, owner.uid);
  if (error != std::errc() || end != name.data() + second) return std::nullopt;
  return owner;
}

std::vector<std::string> Spool::Names() const {
  std::vector<std::string> names = NamesIn(folder_.get());
  // An agent that makes a file itself renames it when it is whole. If the agent was killed before, the file under its first
  // name may hold enough all the same.
  std::erase_if(names, [](const std::string& name) {
    return name.ends_with(kSetAsideSuffix) || !(name.starts_with('.') || name.ends_with(STACKD_SPOOL_SUFFIX));
  });
  return names;
}

Result<Spool::File> Spool::Read(const std::string& name) const {
  // O_NONBLOCK, because the open of a FIFO would wait for a writer.
  Fd fd(openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return Error(Code::kNotFound, "it is not there any more");
    if (errno == ELOOP) return Error(Code::kInvalidArgument, "it is a link");
    if (errno == ENXIO) return Error(Code::kInvalidArgument, "it is not a file");
    return Error(Code::kUnavailable, std::string("it cannot be opened: ") + strerror(errno));
  }
  // Writers are asked for before the size: a file without writers is then read whole.
  const Writers writers = WritersOf(fd.get());
  struct stat status;
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Error(Code::kInvalidArgument, "it is not a file");
  if (status.st_size > STACKD_SPOOL_MAX_BYTES) return Error(Code::kInvalidArgument, "it is larger than a crash can be");
  File file{.bytes = std::string(static_cast<size_t>(status.st_size), '\0'),
            .uid = status.st_uid,
            .in_use = InUse(writers, status)};
  for (size_t done = 0; done < file.bytes.size();) {
    ssize_t got = pread(fd.get(), file.bytes.data() + done, file.bytes.size() - done, static_cast<off_t>(done));
    if (got < 0) return Error(Code::kUnavailable, std::string("it cannot be read: ") + strerror(errno));
    if (got == 0) file.bytes.resize(done);
    done += static_cast<size_t>(got);
  }
  return file;
}

bool Spool::CutIfTooLarge(const std::string& name) const {
  struct stat status;
  if (fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) return false;
  if (status.st_size <= STACKD_SPOOL_MAX_BYTES) return false;
  Fd fd(openat(folder_.get(), name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return fd.valid() && ftruncate(fd.get(), 0) == 0;
}

void Spool::Remove(const std::string& name) const { unlinkat(folder_.get(), name.c_str(), 0); }

void Spool::SetAside(const std::string& name) const {
  std::string aside = name + std::string(kSetAsideSuffix);
  if (renameat(folder_.get(), name.c_str(), folder_.get(), aside.c_str()) != 0) Remove(name);
}

std::string Spool::MoveTo(const Quarantine& quarantine, const std::string& name) const {
  std::string kept = quarantine.Keep(folder_.get(), name);
  if (kept.empty()) Remove(name);
  return kept;
}

void Spool::RemoveOldSetAside() const {
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const std::string& other : NamesIn(folder_.get())) {
    struct stat status;
    if (!other.ends_with(kSetAsideSuffix)) continue;
    if (fstatat(folder_.get(), other.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    kept.emplace_back(status.st_ctim.tv_sec * kNsPerSecond + status.st_ctim.tv_nsec, other);
  }
  std::ranges::sort(kept);
  for (size_t i = 0; i + kMaxSetAside < kept.size(); i++) Remove(kept[i].second);
}

}  // namespace stackd
