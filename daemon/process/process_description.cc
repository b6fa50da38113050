#include "daemon/process/process_description.h"

#include <unistd.h>

#include <string_view>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

int64_t StartWallNs(uint64_t start_ticks) {
  int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  if (start_ticks > static_cast<uint64_t>(INT64_MAX / kNsPerSecond)) return 0;
  int64_t since_boot_ns = static_cast<int64_t>(start_ticks) * (kNsPerSecond / ticks_per_second);
  return WallNs() - ClockNs(CLOCK_BOOTTIME) + since_boot_ns;
}

Share ShareOf(const stackd_hello& hello) {
  const bool is_known = hello.share >= STACKD_SHARE_STACKS && hello.share <= STACKD_SHARE_MEMORY;
  if (is_known) return static_cast<Share>(hello.share);
  return (hello.flags & STACKD_HELLO_HAS_MEM) != 0 ? Share::kMemory : Share::kNotSaid;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string DefaultName(const std::string& argv0, const std::string& executable) {
  std::string name = BaseName(argv0.substr(0, argv0.find(' ')));
  // Some programs write their state over argv[0]: "postgres: checkpointer". The word before the colon is the program.
  if (!name.empty() && name.back() == ':') name.pop_back();
  return name.empty() ? BaseName(executable) : name;
}

ProcessDescription DescribeProcess(const stackd_hello& hello, uid_t uid, const std::string& id) {
  ProcessDescription description;
  description.id = id;
  description.pid = hello.pid;
  description.uid = static_cast<int32_t>(uid);
  description.abi_version = hello.abi_version;
  description.share = ShareOf(hello);
  description.executable = FieldText(hello.exe);
  description.argv0 = FieldText(hello.argv0);
  description.hostname = FieldText(hello.hostname);
  description.display_name = FieldText(hello.name);
  if (description.display_name.empty()) {
    description.display_name = DefaultName(description.argv0, description.executable);
  }
  description.start_wall_ns = StartWallNs(hello.start_ticks);
  return description;
}

std::string LossOf(Share share) {
  constexpr std::string_view kInHeaps =
      "goroutines, tasks of asyncio, names of Java's methods and lines of scripts, which lie "
      "in its heap, are missing";
  switch (share) {
    case Share::kStacks:
      return "its memory is not read (STACKD_SHARE=stacks): " + std::string(kInHeaps) +
             ", and so is code that has no file any more";
    case Share::kNames:
      return "of its memory only code and read-only data are read (STACKD_SHARE=names): " + std::string(kInHeaps);
    default:
      return {};
  }
}

}  // namespace stackd
