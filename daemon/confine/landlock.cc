#include "daemon/confine/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

// The kernel's struct landlock_ruleset_attr of version 6. Headers of Debian 12 know version 2 alone.
struct RulesetAttributes {
  uint64_t handled_access_fs;
  uint64_t handled_access_net;
  uint64_t scoped;
};

struct Rights {
  int since_version;
  uint64_t fs, net, scoped;
};

constexpr uint64_t kTruncate = 1ull << 14, kIoctlDevice = 1ull << 15;
constexpr uint64_t kBindTcp = 1, kConnectTcp = 2;

// What each version of the interface has added.
constexpr Rights kRights[] = {
    {1, (1ull << 13) - 1, 0, 0},          // execute, write, read, list, remove and make files of every kind
    {2, LANDLOCK_ACCESS_FS_REFER, 0, 0},  // link or rename into another folder
    {3, kTruncate, 0, 0},                 //
    {4, 0, kBindTcp | kConnectTcp, 0},    //
    {5, kIoctlDevice, 0, 0},              //
    {6, 0, 0, 3},                         // connect to abstract sockets, signal others
};

constexpr uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kOnlyOfFolders =
    ~(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE | kTruncate | kIoctlDevice);

RulesetAttributes Handled(const LandlockRules& rules) {
  const int version = LandlockVersion();
  RulesetAttributes handled{};
  for (const Rights& rights : kRights) {
    if (version < rights.since_version) break;
    handled.handled_access_fs |= rights.fs;
    handled.handled_access_net |= rights.net;
    handled.scoped |= rights.scoped;
  }
  if (rules.reads) handled.handled_access_fs &= ~kRead;
  if (rules.listens) handled.handled_access_net &= ~kBindTcp;
  if (rules.connects) handled.handled_access_net &= ~kConnectTcp;
  return handled;
}

bool Allow(int ruleset, const std::string& path, uint64_t access) {
  const Fd place(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status;
  if (!place.valid() || fstat(place.get(), &status) != 0) return true;
  if (!S_ISDIR(status.st_mode)) access &= ~kOnlyOfFolders;
  const landlock_path_beneath_attr beneath{.allowed_access = access, .parent_fd = place.get()};
  return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0;
}

}  // namespace

int LandlockVersion() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? static_cast<int>(version) : 0;
}

bool RestrictByLandlock(const LandlockRules& rules) {
  const RulesetAttributes handled = Handled(rules);
  // A kernel takes a longer struct than its own if the rest is zero.
  const Fd ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0)));
  if (!ruleset.valid()) return false;
  for (const std::string& path : rules.written) {
    if (!Allow(ruleset.get(), path, handled.handled_access_fs & ~(kIoctlDevice | LANDLOCK_ACCESS_FS_EXECUTE))) return false;
  }
  for (const std::string& path : rules.executed) {
    if (!Allow(ruleset.get(), path, LANDLOCK_ACCESS_FS_EXECUTE)) return false;
  }
  return syscall(SYS_landlock_restrict_self, ruleset.get(), 0) == 0;
}

}  // namespace stackd
