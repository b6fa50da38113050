#include "daemon/symbolize/debug_folders.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace stackd {
namespace {

// A path that stays where it is looked up: no "..", and no part that is empty.
bool StaysBelow(std::string_view relative_path) {
  if (relative_path.empty() || relative_path.size() >= 4096 || relative_path.find('\0') != std::string_view::npos)
    return false;
  while (!relative_path.empty()) {
    size_t end = std::min(relative_path.find('/'), relative_path.size());
    std::string_view part = relative_path.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    relative_path.remove_prefix(std::min(end + 1, relative_path.size()));
  }
  return true;
}

bool HasElfMagic(int fd) {
  struct stat status;
  char magic[SELFMAG];
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && pread(fd, magic, SELFMAG, 0) == SELFMAG &&
         memcmp(magic, ELFMAG, SELFMAG) == 0;
}

}  // namespace

Fd DebugFolders::Open(size_t folder, const std::string& relative_path) const {
  if (folder >= dirs_.size() || !StaysBelow(relative_path)) return Fd();
  // O_NONBLOCK: a FIFO must not hold the caller up.
  const std::string path = dirs_[folder] + "/" + relative_path;
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  return fd.valid() && HasElfMagic(fd.get()) ? std::move(fd) : Fd();
}

}  // namespace stackd
