// Captures of real processes under libstackd_agent.so: this program again.
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <set>
#include <thread>

#include "daemon/collect/testing/collector_fixture.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

std::string AgentLibrary() { return std::filesystem::absolute("agent/libstackd_agent.so"); }

// This program again, under the agent; what it does is told by its arguments (VictimMain).
class Victim {
 public:
  Victim(const std::string& dir, std::vector<std::string> arguments) {
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("LD_PRELOAD", AgentLibrary().c_str(), 1);
    setenv("STACKD_DIR", dir.c_str(), 1);
    arguments.insert(arguments.begin(), {"victim", "--victim"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  ~Victim() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

class RealProcessTest : public CollectorFixture {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(_GLIBCXX_TSAN)
    GTEST_SKIP() << "a sanitizer's runtime and a preloaded library do not go together";
#endif
    ASSERT_TRUE(std::filesystem::exists(AgentLibrary()));
  }

  // The id of the process with this pid, when it is there and has as many threads.
  std::string AwaitThreads(pid_t pid, size_t threads, int64_t timeout_ns = kLongNs) {
    std::string id;
    Eventually(
        [&] {
          std::string tasks = "/proc/" + std::to_string(pid) + "/task";
          if (static_cast<size_t>(std::distance(std::filesystem::directory_iterator(tasks), {})) < threads) return false;
          for (const ProcessDescription& process : collector_->Processes()) {
            if (process.pid == pid) id = process.id;
          }
          return !id.empty();
        },
        timeout_ns);
    return id;
  }

  static std::set<int32_t> KernelsList(pid_t pid) {
    std::set<int32_t> tids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
      tids.insert(atoi(entry.path().filename().c_str()));
    }
    return tids;
  }
};

TEST_F(RealProcessTest, EveryThreadIsCapturedWithItsName) {
  StartAndStoreCrashes();
  Victim victim(dir_, {"threads", "50"});
  std::string id = AwaitThreads(victim.pid(), 52);  // main and the agent's helper
  ASSERT_FALSE(id.empty());
  auto capture = collector_->CaptureProcess(id, In(kLongNs));
  ASSERT_TRUE(capture.has_value()) << capture.error().message;
  EXPECT_FALSE((*capture)->partial);
  EXPECT_THAT((*capture)->notes, IsEmpty());
  std::set<int32_t> tids;
  std::set<std::string> names;
  for (const ThreadCapture& thread : (*capture)->threads) {
    tids.insert(thread.tid);
    names.insert(thread.name);
    EXPECT_EQ(thread.status, ThreadStatus::kCaptured) << thread.name;
    EXPECT_GT(thread.stack.word_count(), 0u) << thread.name;
    const Mapping* code = (*capture)->map->Find(thread.registers.value[Registers::kRip]);
    ASSERT_NE(code, nullptr);
    EXPECT_NE(code->module, nullptr) << code->path;
  }
  EXPECT_EQ(tids, KernelsList(victim.pid()));
  for (int i = 0; i < 50; i++) EXPECT_TRUE(names.contains("victim-" + std::to_string(i)));
}

TEST_F(RealProcessTest, AProcessKilledInTheMiddleIsPartialAtOnce) {
  StartAndStoreCrashes();
  int partial = 0;
  for (int delay_us : {0, 200, 1000, 3000, 10000}) {
    Victim victim(dir_, {"threads", "500"});
    std::string id = AwaitThreads(victim.pid(), 502);
    ASSERT_FALSE(id.empty());
    std::thread killer([&] {
      usleep(static_cast<useconds_t>(delay_us));
      kill(victim.pid(), SIGKILL);
    });
    int64_t begin_ns = MonotonicNs();
    auto capture = collector_->CaptureProcess(id, In(60 * kNsPerSecond));
    killer.join();
    EXPECT_LT(MonotonicNs() - begin_ns, 30 * kNsPerSecond);
    if (!capture) {
      EXPECT_EQ(capture.error().code, Code::kNotFound);
      continue;
    }
    if (!(*capture)->partial) continue;
    partial++;
    EXPECT_THAT((*capture)->notes, Contains(HasSubstr("the process ended during the dump")));
  }
  EXPECT_GT(partial, 0);
}

TEST_F(RealProcessTest, AStoppedProcessHasEachThreadReportedAsStoppedInTime) {
  StartAndStoreCrashes();
  Victim victim(dir_, {"threads", "20"});
  std::string id = AwaitThreads(victim.pid(), 22);
  ASSERT_FALSE(id.empty());
  // Which threads it has it tells by itself: as the detector asks it, every few seconds.
  ASSERT_TRUE(collector_->ReadSchedStats(id).has_value());
  kill(victim.pid(), SIGSTOP);
  int status;
  ASSERT_EQ(waitpid(victim.pid(), &status, WUNTRACED), victim.pid());
  int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess(id, In(3 * kNsPerSecond));
  EXPECT_LT(MonotonicNs() - begin_ns, 3 * kNsPerSecond);
  ASSERT_TRUE(capture.has_value());
  EXPECT_TRUE((*capture)->partial);
  EXPECT_EQ((*capture)->threads.size(), 22u);
  for (const ThreadCapture& thread : (*capture)->threads) EXPECT_EQ(thread.status, ThreadStatus::kStopped);
  EXPECT_THAT((*capture)->notes, Contains("the process is stopped: it answers after SIGCONT"));
  kill(victim.pid(), SIGCONT);
  capture = collector_->CaptureProcess(id, In(kLongNs));
  ASSERT_TRUE(capture.has_value());
  EXPECT_FALSE((*capture)->partial);
  for (const ThreadCapture& thread : (*capture)->threads) EXPECT_EQ(thread.status, ThreadStatus::kCaptured);
}

// A daemon that captures without end, in a process of its own.
pid_t StartDaemon(const std::string& dir, pid_t victim_pid, int ready_fd) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto collector = Collector::Start({.dir = dir});
  if (!collector) _exit(1);
  for (int captures = 0;;) {
    for (const ProcessDescription& process : (*collector)->Processes()) {
      if (process.pid != victim_pid) continue;
      auto capture = (*collector)->CaptureProcess(process.id, In(kLongNs));
      bool whole = capture && !(*capture)->partial;
      if (whole && ++captures == 5) {
        [[maybe_unused]] ssize_t written = write(ready_fd, "x", 1);
      }
    }
  }
}

TEST_F(RealProcessTest, ADaemonKilledInADumpFindsItsAgentsAgain) {
  Victim victim(dir_, {"threads", "100"});
  for (int round = 0; round < 3; round++) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t daemon = StartDaemon(dir_, victim.pid(), ready[1]);
    close(ready[1]);
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1) << "it captured";
    close(ready[0]);
    kill(daemon, SIGKILL);
    waitpid(daemon, nullptr, 0);

    StartAndStoreCrashes();
    EXPECT_TRUE(AwaitProcesses(1, 2 * kNsPerSecond)) << "an agent is back within two seconds";
    std::string id = AwaitThreads(victim.pid(), 102);
    auto capture = collector_->CaptureProcess(id, In(kLongNs));
    ASSERT_TRUE(capture.has_value());
    EXPECT_FALSE((*capture)->partial);
    EXPECT_EQ((*capture)->threads.size(), 102u);
    collector_.reset();
  }
}

TEST_F(RealProcessTest, OneCollectorServesTwoHundredProcesses) {
  StartAndStoreCrashes();
  std::vector<std::unique_ptr<Victim>> victims;
  for (int i = 0; i < 200; i++) victims.push_back(std::make_unique<Victim>(dir_, std::vector<std::string>{"threads", "1"}));
  ASSERT_TRUE(AwaitProcesses(200, 60 * kNsPerSecond)) << collector_->Processes().size();
  for (const auto& victim : victims) {
    std::string id = AwaitThreads(victim->pid(), 3);
    ASSERT_FALSE(id.empty());
    auto capture = collector_->CaptureProcess(id, In(kLongNs));
    ASSERT_TRUE(capture.has_value());
    EXPECT_FALSE((*capture)->partial);
    EXPECT_EQ((*capture)->threads.size(), 3u);
  }
  victims.clear();
  EXPECT_TRUE(AwaitProcesses(0));
}

TEST_F(RealProcessTest, AProcessThatExecsIsOneProcessAsBefore) {
  StartAndStoreCrashes();
  Victim victim(dir_, {"exec", "threads", "7"});
  std::string id = AwaitThreads(victim.pid(), 9);
  ASSERT_FALSE(id.empty());
  EXPECT_TRUE(AwaitProcesses(1));
  auto capture = collector_->CaptureProcess(id, In(kLongNs));
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 9u);
}

TEST_F(RealProcessTest, AProcessCanAskForADumpOfItself) {
  StartAndStoreCrashes();
  std::atomic<int> whole{0};
  collector_->OnDumpRequest([&](const OwnDumpRequest& own) {
    auto capture =
        collector_->CaptureProcess(own.process_id, {.trigger = Trigger::kSelf, .deadline_ns = MonotonicNs() + kLongNs});
    if (capture && !(*capture)->partial && (*capture)->trigger == Trigger::kSelf) whole++;
  });
  Victim victim(dir_, {"dump-now"});
  int status;
  ASSERT_EQ(waitpid(victim.pid(), &status, 0), victim.pid());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "stackd_dump_now() said that it was made";
  // The process ends when its threads have answered: the daemon may still be busy with what they said.
  EXPECT_TRUE(Eventually([&] { return whole >= 1; }));
}

// The victim maps a copy of a library that lies where the daemon cannot see it.
void ExpectModuleOfHiddenLibrary(Collector* collector, const std::string& id) {
  auto capture = collector->CaptureProcess(id, In(kLongNs));
  ASSERT_TRUE(capture.has_value());
  bool found = false;
  for (const Mapping& mapping : (*capture)->map->mappings()) {
    if (mapping.path.find("hidden.so") == std::string::npos || !mapping.executable) continue;
    found = true;
    ASSERT_NE(mapping.module, nullptr) << mapping.path;
    EXPECT_NE(mapping.module->FindSection(".eh_frame"), nullptr);
  }
  EXPECT_TRUE(found);
}

TEST_F(RealProcessTest, AModuleInAnotherMountNamespaceIsPassedByTheProcess) {
  StartAndStoreCrashes();
  Victim victim(dir_, {"hidden-by-mount", dir_});
  std::string id = AwaitThreads(victim.pid(), 3);
  if (id.empty() && waitpid(victim.pid(), nullptr, WNOHANG) != 0) GTEST_SKIP() << "this sandbox does not allow mounts";
  ASSERT_FALSE(id.empty());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/hidden.so"));
  ExpectModuleOfHiddenLibrary(collector_.get(), id);
}

TEST_F(RealProcessTest, AModuleThatWasDeletedIsCopiedFromMemory) {
  StartAndStoreCrashes();
  Victim victim(dir_, {"deleted", dir_});
  std::string id = AwaitThreads(victim.pid(), 3);
  ASSERT_FALSE(id.empty());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/hidden.so"));
  ExpectModuleOfHiddenLibrary(collector_.get(), id);
}

// --- What a victim does ---

[[noreturn]] void WaitWithThreads(int threads) {
  std::vector<std::thread> started;
  for (int i = 0; i < threads; i++) {
    started.emplace_back([i] {
      pthread_setname_np(pthread_self(), ("victim-" + std::to_string(i)).c_str());
      for (;;) pause();
    });
  }
  for (;;) pause();
}

// Loads a copy of the mathematics library from a new path.
bool LoadCopy(const std::string& path) {
  Dl_info original;
  if (dladdr(dlsym(RTLD_DEFAULT, "cosf"), &original) == 0) return false;
  std::error_code error;
  std::filesystem::copy_file(original.dli_fname, path, error);
  return !error && dlopen(path.c_str(), RTLD_NOW) != nullptr;
}

int VictimMain(int argc, char** argv) {
  std::string what = argv[2];
  if (what == "threads") WaitWithThreads(atoi(argv[3]));
  if (what == "exec") {
    execl("/proc/self/exe", "victim", "--victim", argv[3], argv[4], nullptr);
    return 1;
  }
  if (what == "dump-now") {
    auto dump_now = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "stackd_dump_now"));
    if (dump_now == nullptr) return 2;
    return Eventually([&] { return dump_now(10'000) == 0; }) ? 0 : 3;
  }
  std::string path = std::string(argv[3]) + "/hidden.so";
  if (what == "hidden-by-mount") {
    bool hidden = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                  mount("tmpfs", argv[3], "tmpfs", 0, nullptr) == 0;
    if (!hidden) return 4;
  }
  if (!LoadCopy(path)) return 5;
  if (what == "deleted") unlink(path.c_str());
  (void)argc;
  WaitWithThreads(1);
}

}  // namespace
}  // namespace stackd

int main(int argc, char** argv) {
  if (argc >= 3 && strcmp(argv[1], "--victim") == 0) return stackd::VictimMain(argc, argv);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
