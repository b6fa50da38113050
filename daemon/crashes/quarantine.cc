#include "daemon/crashes/quarantine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr std::string_view kNotePrefix = "attempts-";
// Notes of files that went otherwise. A daemon works at one file at a time.
constexpr size_t kMaxNotes = 256;

// Names of files may be as long as a file system allows: what is derived from them is short.
std::string HashOf(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  char text[17];
  snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string NoteOf(const std::string& name) { return std::string(kNotePrefix) + HashOf(name); }

struct Entry {
  int64_t changed_ns;
  std::string name;
  int64_t size_bytes;
};

// Entries of the folder, oldest first.
std::vector<Entry> EntriesOf(int folder_fd) {
  std::vector<Entry> entries;
  const int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return entries;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(fd), closedir);
  if (folder == nullptr) {
    close(fd);
    return entries;
  }
  while (const dirent* entry = readdir(folder.get())) {
    struct stat status;
    if (fstatat(folder_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    entries.push_back({status.st_ctim.tv_sec * kNsPerSecond + status.st_ctim.tv_nsec, entry->d_name,
                       static_cast<int64_t>(status.st_size)});
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::tie(entry.changed_ns, entry.name); });
  return entries;
}

}  // namespace

Result<std::unique_ptr<Quarantine>> Quarantine::Open(const std::string& dir) {
  std::string path = dir + "/quarantine";
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error(Code::kFailedPrecondition, "cannot make the folder " + path + ": " + strerror(errno));
  }
  Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status;
  if (!folder.valid() || fstat(folder.get(), &status) != 0) {
    return Error(Code::kFailedPrecondition, "cannot open the folder " + path + ": " + strerror(errno));
  }
  if (status.st_uid != geteuid() || fchmod(folder.get(), 0700) != 0) {
    return Error(Code::kFailedPrecondition,
                 "the folder " + path + " belongs to uid " + std::to_string(status.st_uid) + ": remove it");
  }
  std::vector<Entry> entries = EntriesOf(folder.get());
  std::erase_if(entries, [](const Entry& entry) { return !entry.name.starts_with(kNotePrefix); });
  for (size_t i = 0; i + kMaxNotes < entries.size(); ++i) unlinkat(folder.get(), entries[i].name.c_str(), 0);
  return std::unique_ptr<Quarantine>(new Quarantine(std::move(folder), std::move(path)));
}

int Quarantine::Attempts(const std::string& name) const {
  const Fd note(openat(folder_.get(), NoteOf(name).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  unsigned char count = 0;
  return note.valid() && pread(note.get(), &count, 1, 0) == 1 ? count : 0;
}

void Quarantine::Begin(const std::string& name) const {
  const unsigned char count = static_cast<unsigned char>(std::min(Attempts(name) + 1, 255));
  const Fd note(openat(folder_.get(), NoteOf(name).c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  // What cannot be noted is tried once more than it should be.
  if (note.valid()) (void)!pwrite(note.get(), &count, 1, 0);
}

void Quarantine::End(const std::string& name) const { unlinkat(folder_.get(), NoteOf(name).c_str(), 0); }

std::string Quarantine::Keep(int from_folder_fd, const std::string& name) const {
  const std::string kept = std::to_string(WallNs()) + "-" + HashOf(name);
  if (renameat(from_folder_fd, name.c_str(), folder_.get(), kept.c_str()) != 0) return "";
  End(name);
  RemoveOldest();
  return path_ + "/" + kept;
}

void Quarantine::RemoveOldest() const {
  std::vector<Entry> kept = EntriesOf(folder_.get());
  std::erase_if(kept, [](const Entry& entry) { return entry.name.starts_with(kNotePrefix); });
  int64_t bytes = 0;
  for (const Entry& entry : kept) bytes += entry.size_bytes;
  for (size_t i = 0; i < kept.size() && (kept.size() - i > kMaxFiles || bytes > kMaxBytes); ++i) {
    unlinkat(folder_.get(), kept[i].name.c_str(), 0);
    bytes -= kept[i].size_bytes;
  }
}

}  // namespace stackd
