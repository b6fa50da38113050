// What becomes of a crash that its process has left in the spool.
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/collect/testing/crash_fixture.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

void Write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST_F(CrashTest, EachProcessHasAFileOfItsOwnThatGoesWithIt) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  ASSERT_TRUE(agent.spool.valid());
  ASSERT_THAT(SpoolNames(), SizeIs(1));
  struct stat status;
  ASSERT_EQ(stat(SpoolPath(SpoolNames()[0]).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((dir_ + "/spool").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  agent.Close();
  EXPECT_TRUE(Eventually([&] { return SpoolNames().empty(); }));
}

TEST_F(CrashTest, AFileThatAProcessLeftIsTakenInOnceItsRingWasSeenTo) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  std::string bytes = agent.SpoolBytes(agent.WriteCrashSlots(5, 1));
  ASSERT_EQ(write(agent.spool.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_TRUE(capture->crash->from_spool);
  EXPECT_EQ(capture->crash->id[0], 5u);
  EXPECT_EQ(capture->process.pid, getpid());
  EXPECT_EQ(capture->process.display_name, "fake");
  ASSERT_THAT(capture->threads, SizeIs(1));
  EXPECT_THAT(capture->threads[0].stack.words(), ElementsAre(1, 5));
  EXPECT_TRUE(Eventually([&] { return SpoolNames().empty(); }));
  EXPECT_EQ(Counter("spool_taken"), 1);
}

TEST_F(CrashTest, IsTakenOutOfTheFileWhereItsProcessEndedBeforeItWasAskedForItsMap) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  uint32_t first = agent.WriteCrashSlots(5, 1);
  std::string bytes = agent.SpoolBytes(first, Hello(), "1000-2000 r-xp 00000000 08:01 5 /usr/bin/fake\n");
  ASSERT_EQ(write(agent.spool.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  agent.Commit(first);
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_NE(capture->map->Find(0x1000), nullptr);
  EXPECT_TRUE(Eventually([&] { return SpoolNames().empty(); }));
  EXPECT_THAT(Crashes(), SizeIs(1));
}

TEST_F(CrashTest, IsTakenOutOfTheRingWhereTheFileHoldsAnotherOrClaimsToBeOfAnotherProcess) {
  StartAndHandle();
  FakeAgent agent(dir_), forger(dir_);
  ASSERT_EQ(agent.Register(Hello(1)), "");
  ASSERT_EQ(forger.Register(Hello(2)), "");
  std::string another = agent.SpoolBytes(agent.WriteCrashSlots(5, 1), Hello(1));
  ASSERT_EQ(write(agent.spool.get(), another.data(), another.size()), static_cast<ssize_t>(another.size()));
  agent.Commit(agent.WriteCrashSlots(6, 1));
  uint32_t forged = forger.WriteCrashSlots(7, 1);
  std::string claim = forger.SpoolBytes(forged, Hello(1));
  ASSERT_EQ(write(forger.spool.get(), claim.data(), claim.size()), static_cast<ssize_t>(claim.size()));
  forger.Commit(forged);
  agent.Close();
  forger.Close();
  ASSERT_NE(AwaitCrash(3), nullptr);
  std::vector<uint64_t> ids;
  for (const auto& crash : Crashes()) ids.push_back(crash->crash->id[0]);
  EXPECT_THAT(ids, testing::UnorderedElementsAre(5, 6, 7));
}

TEST_F(CrashTest, FilesOfADaemonThatDiedAreTakenInAtTheStart) {
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  std::string bytes = agent.SpoolBytes(agent.WriteCrashSlots(5, 1));
  Write(SpoolPath(SpoolNames()[0]), bytes);
  Write(SpoolPath("00000000000000070000000000000000.crash"), agent.SpoolBytes(agent.WriteCrashSlots(7, 1), Hello(4711)));
  agent.Close();
  collector_.reset();
  StartAndHandle();
  ASSERT_NE(AwaitCrash(2), nullptr);
  EXPECT_TRUE(Eventually([&] { return SpoolNames().empty(); }));
}

TEST_F(CrashTest, AFileThatTheStoreDoesNotTakeStays) {
  stores_ = false;
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  Write(SpoolPath("00000000000000070000000000000000.crash"), agent.SpoolBytes(agent.WriteCrashSlots(7, 1), Hello(4711)));
  Handle();
  ASSERT_NE(AwaitCrash(), nullptr);
  {
    std::lock_guard lock(mutex_);
    stores_ = true;
  }
  ASSERT_NE(AwaitCrash(2), nullptr);
  EXPECT_TRUE(Eventually([&] { return SpoolNames().size() == 1; }));
}

TEST_F(CrashTest, AnEmptyFileThatAProcessStillHasOpenStaysForIt) {
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  std::string bytes = agent.SpoolBytes(agent.WriteCrashSlots(5, 1));
  Fd spool = std::move(agent.spool);
  agent.Close();
  collector_.reset();
  StartAndHandle();
  // A file beside it that is taken in shows that the spool was looked through.
  Write(SpoolPath("00000000000000070000000000000000.crash"), agent.SpoolBytes(agent.WriteCrashSlots(7, 1), Hello(4711)));
  ASSERT_NE(AwaitCrash(), nullptr);
  ASSERT_TRUE(Eventually([&] { return SpoolNames().size() == 1; }));
  ASSERT_EQ(write(spool.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  spool.Reset();
  auto capture = AwaitCrash(2);
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->crash->id[0], 5u);
}

TEST_F(CrashTest, AFileThatIsCutShortOrGarbageOrALinkCostsNoOther) {
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  std::string good = agent.SpoolBytes(agent.WriteCrashSlots(7, 1), Hello(4711));
  std::string unfinished = good;
  memset(unfinished.data(), 0, 8);
  Write(dir_ + "/elsewhere", good);
  Write(SpoolPath("a.crash"), unfinished);
  Write(SpoolPath("b.crash"), good.substr(0, good.size() - 1));
  Write(SpoolPath("c.crash"), std::string(5000, 'x'));
  std::filesystem::create_symlink(dir_ + "/elsewhere", SpoolPath("d.crash"));
  ASSERT_EQ(mkfifo(SpoolPath("e.crash").c_str(), 0600), 0);
  Write(SpoolPath("f.crash"), "");
  std::filesystem::resize_file(SpoolPath("f.crash"), STACKD_SPOOL_MAX_BYTES + 1);
  Write(SpoolPath("g.crash"), good);
  Handle();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->process.pid, 4711);
  ASSERT_TRUE(Eventually([&] { return Counter("spool_refused") == 6; })) << Counter("spool_refused");
  EXPECT_THAT(Crashes(), SizeIs(1));
  std::vector<std::string> names = SpoolNames();
  std::erase_if(names, [](const std::string& name) { return name.find('_') != std::string::npos; });
  EXPECT_THAT(names, testing::UnorderedElementsAre("a.crash.bad", "b.crash.bad", "c.crash.bad"));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/elsewhere"));
}

TEST_F(CrashTest, AFileThatItsWriterHadNoTimeToNameIsTakenInIfItIsWhole) {
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  std::string good = agent.SpoolBytes(agent.WriteCrashSlots(7, 1), Hello(4711));
  Write(SpoolPath(".00000000000000070000000000000000"), good);
  Write(SpoolPath(".00000000000000080000000000000000"), std::string(8, '\0') + good.substr(8));
  Handle();
  ASSERT_NE(AwaitCrash(), nullptr);
  ASSERT_TRUE(Eventually([&] { return Counter("spool_refused") == 1 && SpoolNames().size() == 2; }));
  EXPECT_THAT(SpoolNames(), Contains(".00000000000000080000000000000000.bad"));
}

TEST_F(CrashTest, AProcessCannotSpoolAsAnother) {
  StartAndHandle();
  FakeAgent victim(dir_), forger(dir_);
  ASSERT_EQ(victim.Register(Hello(1)), "");
  ASSERT_EQ(forger.Register(Hello(2)), "");
  std::string bytes = forger.SpoolBytes(forger.WriteCrashSlots(5, 1), Hello(1));
  ASSERT_EQ(write(forger.spool.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  forger.Close();
  ASSERT_TRUE(Eventually([&] { return Counter("spool_refused") == 1; }));
  EXPECT_THAT(Crashes(), IsEmpty());
}

TEST_F(CrashTest, WhereAllMayWriteTheyMayLeaveCrashesAndSeeNoneOfOthers) {
  ASSERT_EQ(chmod(dir_.c_str(), 02777), 0);
  Start();
  struct stat status;
  ASSERT_EQ(stat((dir_ + "/spool").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 03733u);
}

TEST_F(CrashTest, ANameOnTheFileOfAnotherUserSaysNothing) {
  ASSERT_EQ(chmod(dir_.c_str(), 0777), 0);
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(Hello(1)), "");
  // As the daemon names files: of process 4711-1-1, user 0.
  const std::string path = SpoolPath("4711-1-1_0_00000000deadbeef.crash");
  Write(path, agent.SpoolBytes(agent.WriteCrashSlots(7, 1), Hello(4711)));
  if (chown(path.c_str(), 20001, 20001) != 0) GTEST_SKIP() << "needs the right to give a file to another user";
  Handle();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->process.uid, 20001u);
}

TEST_F(CrashTest, AFolderThatIsALinkIsNotUsed) {
  std::filesystem::create_directory(dir_ + "/elsewhere");
  std::filesystem::create_symlink(dir_ + "/elsewhere", dir_ + "/spool");
  Start();
  EXPECT_THAT(collector_->Problems(), ElementsAre(HasSubstr("cannot open the folder")));
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  EXPECT_FALSE(agent.spool.valid());
  EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/elsewhere"));
}

}  // namespace
}  // namespace stackd
