#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/clock.h"
#include "daemon/testing/hang_scene.h"

namespace stackd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Wait = v1::Wait;
using Finding = v1::Finding;

constexpr int32_t kFd = 9;

// Thread 101 waits in flock(), or fcntl(), for what `lock` says; a sleeper is beside it.
HangScene Scene(FileLock lock, int32_t command = 0) {
  HangScene scene;
  scene.AddThread(101, "locker", {"__GI_flock@libc.so.6", "Save"});
  if (command == 0) {
    scene.SetCall(101, SYS_flock, {kFd, 2});
  } else {
    scene.SetCall(101, SYS_fcntl, {kFd, static_cast<uint64_t>(command)});
  }
  scene.captured(101).waited_fds = {kFd};
  scene.AddSleeper(102, "sleeper", "Sleep");
  scene.capture().fds.push_back({.fd = kFd, .name = "/srv/data"});
  lock.fd = kFd;
  scene.capture().file_locks.push_back(lock);
  scene.Explain();
  return scene;
}

const FileLock kOfBackup{.holder = {12, "back\nup"}, .still_holds = StillHolds::kYes, .cycle = {}};

TEST(FileLockOwner, AnotherProcessIsNamed) {
  HangScene scene = Scene(kOfBackup);
  EXPECT_EQ(scene.wait(101).owner(), Wait::OTHER_PROCESS);
  EXPECT_EQ(scene.wait(101).explanation(), "waits for a file lock of fd 9 (/srv/data); held by back?up (pid 12)");
  EXPECT_EQ(scene.Finding(Finding::OWNER_UNKNOWN).severity(), Finding::SUSPICIOUS);
  EXPECT_EQ(scene.Finding(Finding::OWNER_UNKNOWN).explanation(),
            "thread locker (tid 101) in Save waits for a file lock of /srv/data; held by back?up (pid 12)");
}

TEST(FileLockOwner, ProcessThatMayHaveEndedIsNotSaidToHoldIt) {
  FileLock lock = kOfBackup;
  lock.still_holds = StillHolds::kNotKnown;
  EXPECT_THAT(Scene(lock).wait(101).owner_note(), HasSubstr("taken by back?up (pid 12); whether it has it still is not"));
  lock.still_holds = StillHolds::kNo;
  // Its number may be another process's by now, and so may the name.
  EXPECT_EQ(Scene(lock).wait(101).owner_note(),
            "taken by process 12, which has ended or closed it: a process that shares its open file has it");
}

TEST(FileLockOwner, MoreReadersAreCounted) {
  FileLock lock = kOfBackup;
  lock.more_readers = 2;
  EXPECT_EQ(Scene(lock).wait(101).owner_note(), "held by back?up (pid 12), and by 2 more to read");
}

TEST(FileLockOwner, HolderThatWorksGivesNoFindingUnlessTheWaitIsLong) {
  FileLock lock = kOfBackup;
  lock.runs = true;
  HangScene scene = Scene(lock);
  EXPECT_THAT(scene.wait(101).explanation(), HasSubstr("held by back?up (pid 12)"));
  EXPECT_EQ(scene.Finding(Finding::OWNER_UNKNOWN).tids_size(), 0);
  scene.captured(101).unmoved_ns = kNsPerSecond;
  scene.Explain();
  EXPECT_THAT(scene.Finding(Finding::OWNER_UNKNOWN).tids(), ElementsAre(101));
}

TEST(FileLockOwner, CycleOfProcessesIsADeadlockThatIsNotCertain) {
  FileLock lock = kOfBackup;
  lock.runs = true;
  lock.cycle = {lock.holder, {13, ""}};
  const Finding finding = Scene(lock).Finding(Finding::DEADLOCK);
  EXPECT_EQ(finding.severity(), Finding::SUSPICIOUS);
  EXPECT_THAT(finding.explanation(),
              HasSubstr("held by back?up (pid 12), which waits for a file lock of process 13, which waits "
                        "for a file lock of this process"));
  EXPECT_THAT(finding.details(), ElementsAre(HasSubstr("as far as can be seen"), HasSubstr("a signal could end the wait")));
}

TEST(FileLockOwner, ProcessThatHasItItselfHangsForCertainOnlyWithoutOthers) {
  FileLock lock{.holder = {kScenePid, "bank"}, .is_own = true, .still_holds = StillHolds::kYes, .cycle = {}};
  HangScene scene = Scene(lock);
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_RECORDED);
  EXPECT_EQ(scene.wait(101).owner_note(), "held by this process itself, through another open file");
  EXPECT_EQ(scene.Finding(Finding::OWNER_UNKNOWN).severity(), Finding::SUSPICIOUS);
  // Another thread could release it at any moment.
  scene.captured(102).call.reset();
  scene.Explain();
  EXPECT_THAT(scene.dump().findings(), IsEmpty());
  // The agent's thread is none of the program's.
  scene.captured(102).is_agent = true;
  scene.dump().mutable_threads(1)->set_is_agent(true);
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::SELF_DEADLOCK).severity(), Finding::SUSPICIOUS);
  scene.capture().file_locks[0].still_holds = StillHolds::kNotKnown;
  scene.Explain();
  EXPECT_EQ(scene.Finding(Finding::SELF_DEADLOCK).tids_size(), 0);
  EXPECT_THAT(scene.wait(101).owner_note(), HasSubstr("taken by this process itself"));
}

TEST(FileLockOwner, LocksOfOpenFilesHaveNoProcess) {
  FileLock lock{.kind = FileLockKind::kRecord, .held_as = FileLockKind::kOpenFile, .cycle = {}};
  HangScene scene = Scene(lock, F_SETLKW);
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_RECORDED);
  EXPECT_THAT(scene.wait(101).owner_note(), HasSubstr("for which the kernel records no process"));
  scene = Scene(lock, F_OFD_SETLKW);
  EXPECT_EQ(scene.wait(101).owner(), Wait::NOT_KNOWN);
  EXPECT_THAT(scene.dump().findings(0).explanation(), HasSubstr("/proc/locks shows no process for a wait by F_OFD_SETLKW"));
}

TEST(FileLockOwner, LockOfAnotherKindOrFileIsNotTaken) {
  HangScene scene = Scene(kOfBackup, F_SETLKW);
  EXPECT_EQ(scene.wait(101).owner(), Wait::NONE);
  EXPECT_THAT(scene.dump().findings(0).explanation(), HasSubstr("this process cannot tell (see /proc/locks)"));
  scene = Scene(kOfBackup);
  scene.captured(101).waited_fds = {kFd + 1};
  scene.Explain();
  EXPECT_EQ(scene.wait(101).owner(), Wait::NONE);
}

TEST(FileLockOwner, ProcessOfAnotherMachineHasNoNumberHere) {
  FileLock lock{.cycle = {}};
  EXPECT_THAT(Scene(lock).wait(101).owner_note(), HasSubstr("a process that this kernel does not know"));
}

}  // namespace
}  // namespace stackd
