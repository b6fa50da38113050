// A process that has no agent, as far as the kernel shows it to the user of stackctl.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "stackd/wire.h"

namespace stackd {

class UnregisteredProcess {
 public:
  // `proc` is "/proc", or a copy for tests. Fails with a sentence that names what is in the way: another uid, another PID
  // namespace, Yama, a process that is not dumpable.
  static Result<UnregisteredProcess> Open(const std::string& proc, int32_t pid);

  // What the daemon calls it: "processes/1234-567890".
  std::string name() const;
  // What an agent in it would say that does not handle signals. The three files go along with it.
  stackd_hello Hello() const;
  int memory() const { return memory_.get(); }
  int maps() const { return maps_.get(); }
  int folder() const { return folder_.get(); }
  // A file that it has mapped, by its path in maps, or "/proc/self/exe"; invalid where there is none.
  Fd OpenMapped(const std::string& path) const;

 private:
  UnregisteredProcess() = default;

  std::string path_;  // "/proc/1234"
  int32_t pid_ = 0;
  uint64_t start_ticks_ = 0;
  Fd memory_;
  Fd maps_;
  Fd folder_;
};

}  // namespace stackd
