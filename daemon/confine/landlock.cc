#include "daemon/confine/landlock.h"

#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

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

// What each version of the interface has added.
constexpr Rights kRights[] = {
    {1, (1ull << 13) - 1, 0, 0},  // execute, write, read, list, remove and make files of every kind
    {2, 1ull << 13, 0, 0},        // link or rename into another folder
    {3, 1ull << 14, 0, 0},        // truncate
    {4, 0, 3, 0},                 // bind and connect TCP
    {5, 1ull << 15, 0, 0},        // ioctl of devices
    {6, 0, 0, 3},                 // connect to abstract sockets, signal others
};

}  // namespace

int LandlockVersion() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? static_cast<int>(version) : 0;
}

bool ForbidPaths() {
  const int version = LandlockVersion();
  RulesetAttributes handled{};
  for (const Rights& rights : kRights) {
    if (version < rights.since_version) break;
    handled.handled_access_fs |= rights.fs;
    handled.handled_access_net |= rights.net;
    handled.scoped |= rights.scoped;
  }
  // A kernel takes a longer struct than its own if the rest is zero.
  const long ruleset = syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
  if (ruleset < 0) return false;
  const bool restricted = syscall(SYS_landlock_restrict_self, static_cast<int>(ruleset), 0) == 0;
  close(static_cast<int>(ruleset));
  return restricted;
}

}  // namespace stackd
