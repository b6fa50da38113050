#include "daemon/process/open_below.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace stackd {
namespace {

constexpr int kAlways = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
constexpr uint64_t kNothingElse = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

bool IsOfProcfs(const Fd& fd) {
  struct statfs file_system;
  return fstatfs(fd.get(), &file_system) == 0 && file_system.f_type == PROC_SUPER_MAGIC;
}

// Another mount of the same procfs is another place, too.
bool IsSameMount(const Fd& one, const Fd& other) {
  struct statx first, second;
  constexpr unsigned kMask = STATX_INO | STATX_MNT_ID;
  if (statx(one.get(), "", AT_EMPTY_PATH, kMask, &first) != 0) return false;
  if (statx(other.get(), "", AT_EMPTY_PATH, kMask, &second) != 0) return false;
  if (first.stx_dev_major != second.stx_dev_major || first.stx_dev_minor != second.stx_dev_minor) return false;
  const bool are_known = (first.stx_mask & second.stx_mask & STATX_MNT_ID) != 0;
  return !are_known || first.stx_mnt_id == second.stx_mnt_id;
}

Fd Checked(const Fd& folder, Fd fd) {
  if (!fd.valid()) return fd;
  if (IsOfProcfs(fd) && IsSameMount(folder, fd)) return fd;
  errno = EXDEV;
  return Fd();
}

}  // namespace

Fd OpenBelow(const Fd& folder, const char* path, int flags) {
  if (!folder.valid()) return Fd();
  open_how how{.flags = static_cast<uint64_t>(flags | kAlways), .mode = 0, .resolve = kNothingElse};
  // O_PATH goes with few others.
  if ((flags & O_PATH) != 0) how.flags &= ~static_cast<uint64_t>(O_NONBLOCK);
  Fd fd(static_cast<int>(syscall(SYS_openat2, folder.get(), path, &how, sizeof(how))));
  if (!fd.valid() && (errno == ENOSYS || errno == EPERM)) return OpenBelowStepByStep(folder, path, flags);
  return Checked(folder, std::move(fd));
}

Fd OpenBelowStepByStep(const Fd& folder, const char* path, int flags) {
  std::string_view rest = path;
  Fd here;
  while (folder.valid()) {
    const std::string name(rest.substr(0, rest.find('/')));
    const int parent = here.valid() ? here.get() : folder.get();
    if (name.empty() || name == "..") break;
    // As a path first: to open what was put there may already do something.
    Fd found = Checked(folder, Fd(openat(parent, name.c_str(), O_PATH | kAlways)));
    if (!found.valid()) return found;
    if (name.size() == rest.size()) return Checked(folder, Fd(openat(parent, name.c_str(), flags | kAlways)));
    here = std::move(found);
    rest.remove_prefix(name.size() + 1);
  }
  errno = EINVAL;
  return Fd();
}

}  // namespace stackd
