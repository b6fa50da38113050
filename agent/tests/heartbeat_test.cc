#include "stackd/agent.h"

extern "C" {
#include "agent/helper/heartbeat.h"
}

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace stackd {
namespace {

constexpr size_t kPage = 4096;
constexpr unsigned kLimitMs = 5000;
constexpr unsigned kCells = STACKD_MAX_HEARTBEATS;

// Memory as the agent maps that of a ring: shared with the daemon, and left out of a fork.
class RingCells {
 public:
  RingCells() {
    int fd = memfd_create("ring", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPage), 0);
    agents_ = Map(fd);
    daemons_ = Map(fd);
    EXPECT_EQ(madvise(agents_, kPage, MADV_DONTFORK), 0);
    close(fd);
  }
  ~RingCells() {
    if (agents_ != nullptr) munmap(agents_, kPage);
    munmap(daemons_, kPage);
  }

  void Connect() { stackd_heartbeat_set_ring(agents_); }
  // The agent unmaps the ring; the daemon may keep it.
  void Disconnect() {
    stackd_heartbeat_set_ring(nullptr);
    munmap(agents_, kPage);
    agents_ = nullptr;
  }

  // As the daemon sees it: the cell that is watched under a name, or NULL.
  const volatile stackd_heartbeat_cell* Find(const char* name) const {
    for (unsigned i = 0; i < kCells; i++) {
      if (daemons_[i].limit_ms != 0 && strcmp(daemons_[i].name, name) == 0) return &daemons_[i];
    }
    return nullptr;
  }
  unsigned WatchedCount() const {
    unsigned count = 0;
    for (unsigned i = 0; i < kCells; i++) count += daemons_[i].limit_ms != 0;
    return count;
  }

 private:
  static stackd_heartbeat_cell* Map(int fd) {
    void* memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return static_cast<stackd_heartbeat_cell*>(memory);
  }

  stackd_heartbeat_cell* agents_;
  stackd_heartbeat_cell* daemons_;
};

class HeartbeatTest : public testing::Test {
 protected:
  ~HeartbeatTest() override {
    for (stackd_heartbeat_t* heartbeat : registered_) stackd_heartbeat_unregister(heartbeat);
  }
  stackd_heartbeat_t* Register(const char* name, unsigned limit_ms = kLimitMs) {
    return registered_.emplace_back(stackd_heartbeat_register(name, limit_ms));
  }

  std::vector<stackd_heartbeat_t*> registered_;
};

TEST_F(HeartbeatTest, OneThatWasRegisteredBeforeTheDaemonCameIsWatchedWhenItComes) {
  stackd_heartbeat_t* heartbeat = Register("early");
  stackd_beat(heartbeat);
  RingCells ring;
  ring.Connect();
  auto* cell = ring.Find("early");
  ASSERT_NE(cell, nullptr);
  EXPECT_EQ(cell->limit_ms, kLimitMs);
  EXPECT_EQ(cell->tid, static_cast<uint32_t>(syscall(SYS_gettid)));
  uint64_t beats = cell->beats;
  EXPECT_NE(beats, 0u);
  stackd_beat(heartbeat);
  EXPECT_NE(cell->beats, beats);
  ring.Disconnect();
}

TEST_F(HeartbeatTest, OneThatIsRegisteredWhileTheDaemonIsThereIsWatchedFromTheFirstBeatOn) {
  RingCells ring;
  ring.Connect();
  stackd_heartbeat_t* heartbeat = Register("late");
  auto* cell = ring.Find("late");
  ASSERT_NE(cell, nullptr);
  EXPECT_EQ(cell->beats, 0u);
  stackd_beat(heartbeat);
  EXPECT_NE(cell->beats, 0u);
  ring.Disconnect();
}

TEST_F(HeartbeatTest, AProgramsPointerStaysGoodFromDaemonToDaemon) {
  stackd_heartbeat_t* heartbeat = Register("loop");
  stackd_heartbeat_t* resting = Register("rests");
  stackd_beat(resting);
  stackd_heartbeat_suspend(resting);
  for (int i = 0; i < 3; i++) {
    RingCells ring;
    ring.Connect();
    ASSERT_NE(ring.Find("loop"), nullptr);
    uint64_t beats = ring.Find("loop")->beats;
    stackd_beat(heartbeat);
    EXPECT_NE(ring.Find("loop")->beats, beats);
    EXPECT_EQ(ring.Find("rests")->beats, 0u);
    ring.Disconnect();
    beats = ring.Find("loop")->beats;
    stackd_beat(heartbeat);
    EXPECT_EQ(ring.Find("loop")->beats, beats) << "the ring is still in use";
  }
}

TEST_F(HeartbeatTest, ALoopThatSuspendsItEachTimeNeverShowsTheSameNumberTwice) {
  RingCells ring;
  ring.Connect();
  stackd_heartbeat_t* heartbeat = Register("loop");
  auto* cell = ring.Find("loop");
  uint64_t before = 0;
  for (int i = 0; i < 5; i++) {
    stackd_beat(heartbeat);
    EXPECT_GT(cell->beats, before);
    before = cell->beats;
    stackd_heartbeat_suspend(heartbeat);
    EXPECT_EQ(cell->beats, 0u);
    stackd_heartbeat_suspend(heartbeat);
  }
  ring.Disconnect();
}

TEST_F(HeartbeatTest, NamesAndLimitsAreCutToFit) {
  RingCells ring;
  ring.Connect();
  Register(std::string(100, 'x').c_str(), 3);
  Register(nullptr, 0);
  auto* cell = ring.Find(std::string(47, 'x').c_str());
  ASSERT_NE(cell, nullptr);
  EXPECT_EQ(cell->limit_ms, 10u);
  ASSERT_NE(ring.Find(""), nullptr);
  EXPECT_EQ(ring.Find("")->limit_ms, 10u);
  ring.Disconnect();
}

TEST_F(HeartbeatTest, TheSixtyFifthIsNotWatchedAndHarmless) {
  RingCells ring;
  ring.Connect();
  for (unsigned i = 0; i < kCells; i++) Register(std::to_string(i).c_str());
  stackd_heartbeat_t* last = stackd_heartbeat_register("one too many", kLimitMs);
  ASSERT_NE(last, nullptr);
  stackd_beat(last);
  stackd_heartbeat_suspend(last);
  stackd_beat(last);
  EXPECT_EQ(ring.WatchedCount(), kCells);
  EXPECT_EQ(ring.Find("one too many"), nullptr);
  stackd_heartbeat_unregister(last);
  EXPECT_EQ(ring.WatchedCount(), kCells);
  stackd_heartbeat_unregister(registered_.back());
  registered_.pop_back();
  EXPECT_EQ(ring.WatchedCount(), kCells - 1);
  Register("in its place");
  EXPECT_NE(ring.Find("in its place"), nullptr);
  ring.Disconnect();
}

TEST_F(HeartbeatTest, AForkedChildBeatsForItselfAndStartsSuspended) {
  stackd_heartbeat_watch_forks();
  stackd_heartbeat_t* heartbeat = Register("forks");
  RingCells ring;
  ring.Connect();
  stackd_beat(heartbeat);
  auto* cell = ring.Find("forks");
  uint64_t beats = cell->beats;
  pid_t child = fork();
  if (child == 0) {
    auto* own = reinterpret_cast<volatile stackd_heartbeat_cell*>(heartbeat);
    bool fine = own->beats == 0 && own->tid == static_cast<uint32_t>(getpid());
    stackd_beat(heartbeat);
    fine = fine && own->beats > beats && stackd_heartbeat_register("of the child", kLimitMs) != nullptr;
    RingCells childs_ring;
    childs_ring.Connect();
    fine = fine && childs_ring.Find("forks") != nullptr && childs_ring.Find("forks")->beats > beats &&
           childs_ring.Find("of the child") != nullptr;
    stackd_heartbeat_unregister(heartbeat);
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cell->beats, beats);
  EXPECT_EQ(cell->limit_ms, kLimitMs);
  EXPECT_EQ(ring.Find("of the child"), nullptr);
  stackd_beat(heartbeat);
  EXPECT_NE(cell->beats, beats);
  ring.Disconnect();
}

TEST_F(HeartbeatTest, ABeatMakesNoSystemCall) {
  stackd_heartbeat_t* heartbeat = Register("strict");
  pid_t child = fork();
  if (child == 0) {
    /* Whatever is not read, write or exit kills from here on. */
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    for (int i = 0; i < 1000; i++) {
      stackd_beat(heartbeat);
      if (i % 10 == 0) stackd_heartbeat_suspend(heartbeat);
    }
    syscall(SYS_exit, 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// From here on `number` is answered with `action` where its fourth argument (the flags of mmap and mremap) has a bit of
// `flags`.
void Refuse(int number, uint32_t flags, uint32_t action) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = std::size(code), .filter = code};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

// As a kernel does that has no memory left for the new mapping when the former one is gone.
void LeaveHole(int, siginfo_t*, void* context) {
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  munmap(reinterpret_cast<void*>(registers[REG_R8]), kPage);
  registers[REG_RAX] = -ENOMEM;
}

void LeaveHolesFromNowOn() {
  struct sigaction action{};
  action.sa_sigaction = LeaveHole;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  Refuse(SYS_mremap, MREMAP_FIXED, SECCOMP_RET_TRAP);
}

// What `check` gives in a process of its own.
template <typename Check>
bool InChild(Check check) {
  pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "ended by signal " << WTERMSIG(status);
  return status == 0;
}

TEST_F(HeartbeatTest, ARingThatCannotBePutInPlaceLeavesNoHole) {
  EXPECT_TRUE(InChild([] {
    stackd_heartbeat_t* heartbeat = stackd_heartbeat_register("loop", kLimitMs);
    stackd_beat(heartbeat);
    RingCells ring;
    LeaveHolesFromNowOn();
    ring.Connect();
    stackd_beat(heartbeat);
    return ring.Find("loop") == nullptr;
  }));
}

TEST_F(HeartbeatTest, ARingThatCannotBeLeftOtherwiseIsLeftAllTheSame) {
  EXPECT_TRUE(InChild([] {
    RingCells ring;
    ring.Connect();
    stackd_heartbeat_t* heartbeat = stackd_heartbeat_register("loop", kLimitMs);
    auto* own = reinterpret_cast<volatile stackd_heartbeat_cell*>(heartbeat);
    stackd_beat(heartbeat);
    uint64_t beats = own->beats;
    LeaveHolesFromNowOn();
    ring.Disconnect();
    stackd_beat(heartbeat);
    // Whom the daemon would watch for ever.
    return own->beats > beats && own->limit_ms == kLimitMs && ring.Find("loop") == nullptr;
  }));
}

TEST_F(HeartbeatTest, AForkedChildThatGetsNoPageDoesNotBeatForItsParent) {
  stackd_heartbeat_watch_forks();
  EXPECT_TRUE(InChild([] {
    stackd_heartbeat_t* heartbeat = stackd_heartbeat_register("forks", kLimitMs);
    auto* own = reinterpret_cast<volatile stackd_heartbeat_cell*>(heartbeat);
    stackd_beat(heartbeat);
    uint64_t beats = own->beats;
    Refuse(SYS_mmap, MAP_SHARED, SECCOMP_RET_ERRNO | ENOMEM);
    bool fine = InChild([heartbeat] {
      stackd_beat(heartbeat);
      stackd_heartbeat_suspend(heartbeat);
      stackd_heartbeat_unregister(heartbeat);
      return true;
    });
    return fine && own->beats == beats && own->limit_ms == kLimitMs;
  }));
}

TEST_F(HeartbeatTest, ASuspensionWhileTheRingComesIsNotLost) {
  stackd_heartbeat_t* heartbeat = Register("worker");
  for (int round = 0; round < 400; round++) {
    RingCells ring;
    std::atomic<bool> ready = false;
    std::thread worker([&] {
      stackd_beat(heartbeat);
      ready = true;
      for (int i = 0; i < round * 10; i++) stackd_beat(heartbeat);
      stackd_heartbeat_suspend(heartbeat);
    });
    while (!ready) continue;
    ring.Connect();
    worker.join();
    EXPECT_EQ(ring.Find("worker")->beats, 0u) << round;
    stackd_beat(heartbeat);
    EXPECT_NE(ring.Find("worker")->beats, 0u) << round;
    ring.Disconnect();
  }
}

}  // namespace
}  // namespace stackd
