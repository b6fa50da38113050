// A program under the agent, registered with a collector of this process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/collect/collector.h"

namespace stackd::bench {

class UnderAgent {
 public:
  // Starts `command` with the agent in it and returns when it has said "ready" and is registered. Ends this process with a
  // sentence if that does not come true.
  UnderAgent(Collector* collector, const std::string& dir, const std::string& agent,
             const std::vector<std::string>& command);
  ~UnderAgent();
  UnderAgent(const UnderAgent&) = delete;
  UnderAgent& operator=(const UnderAgent&) = delete;

  const std::string& process_id() const { return process_id_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::string process_id_;
};

// An empty folder for one run, removed with what is in it.
class TemporaryDir {
 public:
  TemporaryDir();
  ~TemporaryDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace stackd::bench
