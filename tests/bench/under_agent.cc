#include "tests/bench/under_agent.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "daemon/base/clock.h"

namespace stackd::bench {
namespace {

[[noreturn]] void Fail(const std::string& sentence) {
  fprintf(stderr, "%s\n", sentence.c_str());
  exit(1);
}

[[noreturn]] void Become(const std::vector<std::string>& command, const std::string& dir, const std::string& agent,
                         int stdout_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(stdout_fd, STDOUT_FILENO);
  setenv("STACKD_DIR", dir.c_str(), 1);
  setenv("LD_PRELOAD", agent.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

UnderAgent::UnderAgent(Collector* collector, const std::string& dir, const std::string& agent,
                       const std::vector<std::string>& command) {
  int ends[2];
  if (pipe(ends) != 0) Fail("pipe failed");
  pid_ = fork();
  if (pid_ == 0) Become(command, dir, agent, ends[1]);
  close(ends[1]);
  char text[16] = {};
  ssize_t got = read(ends[0], text, sizeof(text) - 1);
  close(ends[0]);
  if (got <= 0 || !std::string(text).starts_with("ready")) Fail(command[0] + " did not say that it is ready");
  int64_t give_up_ns = MonotonicNs() + 30 * kNsPerSecond;
  while (process_id_.empty()) {
    auto processes = collector->Processes();
    auto found = std::ranges::find(processes, pid_, &ProcessDescription::pid);
    if (found != processes.end()) process_id_ = found->id;
    if (MonotonicNs() > give_up_ns) Fail(command[0] + " did not register");
    usleep(2000);
  }
}

UnderAgent::~UnderAgent() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

TemporaryDir::TemporaryDir() {
  std::string name = std::filesystem::temp_directory_path() / "stackd-bench-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) Fail("cannot make a folder like " + name);
  path_ = name;
}

TemporaryDir::~TemporaryDir() { std::filesystem::remove_all(path_); }

}  // namespace stackd::bench
