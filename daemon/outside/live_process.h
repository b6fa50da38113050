// A process by its pid, as far as the kernel shows it to this user. Nothing runs in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/capture/capture.h"
#include "daemon/outside/obstacles.h"
#include "daemon/process/process_files.h"

namespace stackd {

class LiveProcess {
 public:
  // `proc` is "/proc", or a copy for tests. Fails as FindObstacles says (obstacles.h).
  static Result<LiveProcess> Open(const std::string& proc, int32_t pid);

  int32_t pid() const { return pid_; }
  // "1234-567890", as a daemon would call it: pid and start time.
  std::string id() const;
  ProcessDescription Describe() const;

  // Its folder, maps, and memory.
  const std::shared_ptr<ProcessFiles>& files() const { return files_; }
  int maps_fd() const { return maps_.get(); }
  int memory_fd() const { return memory_.get(); }
  // The folder of its threads.
  int tasks_fd() const { return tasks_.get(); }
  // What was in the way of more when it was opened.
  const std::vector<Obstacle>& obstacles() const { return obstacles_; }
  // "/proc/1234"
  const std::string& path() const { return path_; }

  // A file that it has mapped, as its own mount namespace has it: by its path in maps, or "/proc/self/exe". Invalid where
  // there is none.
  Fd OpenMapped(const std::string& path) const;

  // Its /tmp/perf-PID.map, as its own mount namespace and PID namespace have it. Invalid where there is none, or where the
  // file belongs to another user than the process: any user may write to /tmp.
  Fd OpenPerfMap() const;

 private:
  LiveProcess() = default;

  std::string path_;
  int32_t pid_ = 0;
  Fd maps_, memory_, tasks_;
  std::vector<Obstacle> obstacles_;
  std::shared_ptr<ProcessFiles> files_;
};

}  // namespace stackd
