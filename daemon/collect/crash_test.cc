// What becomes of a crash: out of a ring, of a process that is held or has ended, and out of the spool.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/collect/collector.h"
#include "daemon/modules/address_map.h"
#include "daemon/testing/fake_agent.h"

namespace stackd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kLongNs = 20 * kNsPerSecond;

bool Eventually(const std::function<bool()>& holds) {
  for (int64_t until_ns = MonotonicNs() + kLongNs; MonotonicNs() < until_ns; usleep(1000)) {
    if (holds()) return true;
  }
  return holds();
}

void Write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

class CrashTest : public testing::Test {
 protected:
  CrashTest() {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    EXPECT_EQ(chmod(dir_.c_str(), 0755), 0);
  }
  ~CrashTest() override {
    collector_.reset();
    std::filesystem::remove_all(dir_);
  }

  void Start() {
    auto started = Collector::Start({.dir = dir_, .ring_bytes = 256u << 10});
    ASSERT_TRUE(started.has_value()) << started.error().message;
    collector_ = std::move(*started);
  }
  void Handle() {
    collector_->OnCrash([this](std::shared_ptr<Capture> capture, const std::function<void()>& release) {
      std::unique_lock lock(mutex_);
      crashes_.push_back(std::move(capture));
      changed_.wait(lock, [this] { return !hold_; });
      if (stores_) release();
    });
  }
  void StartAndHandle() {
    ASSERT_NO_FATAL_FAILURE(Start());
    Handle();
  }

  std::vector<std::shared_ptr<Capture>> Crashes() {
    std::lock_guard lock(mutex_);
    return crashes_;
  }
  std::shared_ptr<Capture> AwaitCrash(size_t number = 1) {
    Eventually([&] { return Crashes().size() >= number; });
    auto crashes = Crashes();
    return crashes.size() >= number ? crashes[number - 1] : nullptr;
  }
  void LetGo() {
    std::lock_guard lock(mutex_);
    hold_ = false;
    changed_.notify_all();
  }

  std::vector<std::string> SpoolNames() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/spool")) names.push_back(entry.path().filename());
    return names;
  }
  std::string SpoolPath(const std::string& name) { return dir_ + "/spool/" + name; }
  int64_t Counter(const std::string& name) { return collector_->Counters()[name]; }

  std::string dir_ = "/tmp/crash-XXXXXX";
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Capture>> crashes_;
  bool hold_ = false;
  bool stores_ = true;
  std::unique_ptr<Collector> collector_;
};

// --- Of a process that is held ---

TEST_F(CrashTest, IsTakenThenCapturedWithTheOtherThreadsThenReleased) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  std::jthread helper([&] {
    if (uint32_t seq = agent.AwaitCommand()) {
      // The helper sees the thread that crashed like any other: blocked in its handler.
      agent.Begin(seq, 3);
      agent.WriteThread(seq, 21);
      agent.WriteThread(seq, 22);
      agent.WriteThread(seq, 23);
      agent.Finish(seq);
    }
  });
  agent.Commit(agent.WriteCrashSlots(0xabcd, 22));
  ASSERT_TRUE(agent.SayCrash());
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->trigger, Trigger::kCrash);
  ASSERT_TRUE(capture->crash.has_value());
  EXPECT_THAT(capture->crash->id, ElementsAre(0xabcd, 0));
  EXPECT_EQ(capture->crash->tid, 22);
  EXPECT_EQ(capture->crash->signal_number, 11);
  EXPECT_EQ(capture->crash->fault_address_avma, 8u);
  EXPECT_EQ(capture->crash->abort_message, "last words");
  EXPECT_FALSE(capture->crash->from_spool);
  EXPECT_FALSE(capture->partial) << testing::PrintToString(capture->notes);
  ASSERT_THAT(capture->threads, SizeIs(3));
  EXPECT_EQ(capture->threads[1].name, "culprit");
  EXPECT_EQ(capture->threads[1].status, ThreadStatus::kCaptured);
  EXPECT_THAT(capture->threads[1].stack.words(), ElementsAre(22, 0xabcd)) << "the stack of the crash, not of the handler";
  EXPECT_TRUE(Eventually([&] { return agent.CrashPhase() == STACKD_CRASH_STORED; }));
}

TEST_F(CrashTest, IsNotReleasedBeforeItIsStored) {
  hold_ = true;
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(Hello()), "");
  std::jthread helper([&] { agent.AnswerDump(agent.AwaitCommand(), 1); });
  agent.Commit(agent.WriteCrashSlots(1, 1));
  agent.SayCrash();
  ASSERT_NE(AwaitCrash(), nullptr);
  EXPECT_EQ(agent.CrashPhase(), static_cast<uint32_t>(STACKD_CRASH_TAKEN));
  LetGo();
  EXPECT_TRUE(Eventually([&] { return agent.CrashPhase() == STACKD_CRASH_STORED; }));
}

TEST_F(CrashTest, ThatIsNotStoredIsNotReleased) {
  stores_ = false;
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  std::jthread helper([&] { agent.AnswerDump(agent.AwaitCommand(), 1); });
  agent.Commit(agent.WriteCrashSlots(1, 1));
  agent.SayCrash();
  ASSERT_NE(AwaitCrash(), nullptr);
  // In the next one's turn the first is over.
  FakeAgent next(dir_);
  ASSERT_EQ(next.Register(Hello(99)), "");
  next.Close();
  EXPECT_TRUE(Eventually([&] { return collector_->Processes().size() == 1; }));
  EXPECT_EQ(agent.CrashPhase(), static_cast<uint32_t>(STACKD_CRASH_TAKEN));
}

TEST_F(CrashTest, OfAProcessWhoseThreadsDoNotAnswerIsPartialInTime) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  int64_t begin_ns = MonotonicNs();
  agent.Commit(agent.WriteCrashSlots(1, 1));
  agent.SayCrash();
  ASSERT_TRUE(Eventually([&] { return agent.CrashPhase() == STACKD_CRASH_STORED; }));
  EXPECT_LT(MonotonicNs() - begin_ns, 2 * kNsPerSecond) << "of which files that nobody sends and threads share one";
  EXPECT_TRUE(Crashes()[0]->partial);
}

TEST_F(CrashTest, IsTakenOnceHoweverOftenAProcessSaysSo) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  for (uint64_t id : {1, 2, 3}) {
    agent.Commit(agent.WriteCrashSlots(id, 1));
    agent.SayCrash();
    agent.SayCrash();
  }
  agent.Close();
  ASSERT_TRUE(Eventually([&] { return collector_->Processes().empty() && SpoolNames().empty(); }));
  ASSERT_THAT(Crashes(), SizeIs(1));
  EXPECT_EQ(Crashes()[0]->crash->id[0], 1u);
  EXPECT_EQ(Counter("crashes_repeated"), 2);
}

TEST_F(CrashTest, DuringALiveDumpEndsThatAndIsNotLost) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  ASSERT_TRUE(Eventually([&] { return collector_->Processes().size() == 1; }));
  std::string id = collector_->Processes()[0].id;
  std::jthread helper([&] {
    uint32_t seq = agent.AwaitCommand();
    agent.Begin(seq, 3);
    agent.WriteThread(seq, 1);
    agent.Commit(agent.WriteCrashSlots(7, 1));
    stackd_ring_doorbell(&agent.ring);
    agent.SayCrash();
    if ((seq = agent.AwaitCommand()) != 0) agent.AnswerDump(seq, 2);
  });
  auto live = collector_->CaptureProcess(id, {.deadline_ns = MonotonicNs() + kLongNs});
  ASSERT_TRUE(live.has_value());
  EXPECT_TRUE((*live)->partial);
  EXPECT_THAT((*live)->notes, Contains(HasSubstr("crashed during the dump")));
  auto crash = AwaitCrash();
  ASSERT_NE(crash, nullptr);
  EXPECT_EQ(crash->crash->id[0], 7u);
  EXPECT_THAT(crash->threads, SizeIs(2));
}

TEST_F(CrashTest, WhoseThreadMakesNoSenseIsTakenWithoutAStack) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  uint32_t first = agent.WriteCrashSlots(1, 5);
  static_cast<stackd_slot_header*>(stackd_slot(&agent.ring, first))->next = STACKD_NO_SLOT;
  agent.Commit(first);
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  ASSERT_THAT(capture->threads, SizeIs(1));
  EXPECT_EQ(capture->threads[0].status, ThreadStatus::kAgentFault);
  EXPECT_THAT(capture->notes, Contains(HasSubstr("the stack of the thread that crashed is missing")));
}

TEST_F(CrashTest, SaidBeforeAnybodyListensWaits) {
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  agent.Commit(agent.WriteCrashSlots(1, 1));
  agent.SayCrash();
  Handle();
  EXPECT_NE(AwaitCrash(), nullptr);
}

// --- Of a process that has ended ---

TEST_F(CrashTest, LeftInTheRingOfAProcessThatIsGoneIsTaken) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  agent.Commit(agent.WriteCrashSlots(1, 1));
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_TRUE(capture->partial);
  EXPECT_THAT(capture->notes, Contains(HasSubstr("the process had ended")));
  EXPECT_EQ(capture->process.pid, getpid());
}

TEST_F(CrashTest, TentativeCountsWhenTheProcessEndsWithoutTakingItBack) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  int64_t now_ns = MonotonicNs();
  agent.ring.header->tentative[1] = 1 + agent.WriteCrashSlots(1, 1, now_ns - 2 * kNsPerSecond);
  agent.ring.header->tentative[2] = 1 + agent.WriteCrashSlots(2, 2, now_ns - 1 * kNsPerSecond);
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->crash->id[0], 2u) << "the newest";
  EXPECT_EQ(capture->crash->flags & STACKD_CRASH_HANDLED, static_cast<uint32_t>(STACKD_CRASH_HANDLED));
  EXPECT_EQ(Counter("crashes_tentative"), 1);
}

TEST_F(CrashTest, TentativeThatIsOldOrTakenBackOrOfALiveProcessDoesNotCount) {
  StartAndHandle();
  FakeAgent old(dir_), recovered(dir_), alive(dir_);
  ASSERT_EQ(old.Register(Hello(1)), "");
  ASSERT_EQ(recovered.Register(Hello(2)), "");
  ASSERT_EQ(alive.Register(Hello(3)), "");
  old.ring.header->tentative[0] =
      1 + old.WriteCrashSlots(1, 1, MonotonicNs() - static_cast<int64_t>(STACKD_TENTATIVE_NS) - kNsPerSecond);
  recovered.WriteCrashSlots(2, 1);
  alive.ring.header->tentative[0] = 1 + alive.WriteCrashSlots(3, 1);
  alive.SayCrash();
  old.Close();
  recovered.Close();
  // Their files go when the desk is done with them.
  ASSERT_TRUE(Eventually([&] { return SpoolNames().size() == 1; }));
  EXPECT_THAT(Crashes(), IsEmpty());
}

TEST_F(CrashTest, TentativeLosesAgainstTheOneThatWasCommitted) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  agent.ring.header->tentative[0] = 1 + agent.WriteCrashSlots(1, 1);
  agent.Commit(agent.WriteCrashSlots(2, 2));
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->crash->id[0], 2u);
  ASSERT_TRUE(Eventually([&] { return SpoolNames().empty(); }));
  EXPECT_THAT(Crashes(), SizeIs(1));
}

// A file in memory that begins so and has its size from the start, as a message passes it.
Fd ReportFile(const std::string& text) {
  Fd file(memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), 1 << 16), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK), 0);
  EXPECT_EQ(pwrite(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return file;
}

bool SendReport(FakeAgent* agent, const std::string& text, Fd folder = {}) {
  stackd_report_file message{};
  message.header = {STACKD_MSG_REPORT_FILE, sizeof(message)};
  message.language = static_cast<uint32_t>(Language::kGo);
  strcpy(message.title, "Go traceback");
  std::vector<Fd> files;
  files.push_back(ReportFile(text));
  if (folder.valid()) files.push_back(std::move(folder));
  return agent->Send(message, files);
}

TEST_F(CrashTest, WhatARuntimeSaidLastIsTakenUpToItsEnd) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  ASSERT_TRUE(SendReport(&agent, "panic: no\n"));
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  ASSERT_THAT(capture->managed.reports, SizeIs(1));
  EXPECT_EQ(capture->managed.reports[0].text, "panic: no\n");
}

TEST_F(CrashTest, WhatARuntimeSaidLastStandsBesideTheFaultThatItDiedOf) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  ASSERT_TRUE(SendReport(&agent, "SIGSEGV: segmentation violation\n"));
  agent.ring.header->tentative[0] = 1 + agent.WriteCrashSlots(7, 1);
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->crash->id[0], 7u);
  ASSERT_THAT(capture->managed.reports, SizeIs(1));
  EXPECT_EQ(capture->managed.reports[0].text, "SIGSEGV: segmentation violation\n");
  EXPECT_EQ(capture->memory, nullptr);
}

bool IsClosed(const FakeAgent& agent) {
  char byte;
  return Eventually([&] { return recv(agent.fd(), &byte, 1, MSG_DONTWAIT) == 0; });
}

TEST_F(CrashTest, AReportMayComeByASecondConnectionOfItsProcess) {
  StartAndHandle();
  FakeAgent agent(dir_), companion(dir_), other(dir_);
  ASSERT_EQ(agent.Register(), "");
  ASSERT_TRUE(SendReport(&companion, "panic: no\n", OpenProc("", O_DIRECTORY)));
  stackd_name name{.header = {STACKD_MSG_NAME, sizeof(name)}, .name = "orders"};
  ASSERT_TRUE(companion.Send(name));
  ASSERT_TRUE(Eventually([&] {
    const auto processes = collector_->Processes();
    return processes.size() == 1 && processes[0].display_name == "orders";
  }));
  // Of another process, or a second one of this: refused.
  ASSERT_TRUE(SendReport(&other, "panic: another\n", Fd(open("/proc/1", O_RDONLY | O_DIRECTORY | O_CLOEXEC))));
  EXPECT_TRUE(IsClosed(other));
  FakeAgent second(dir_);
  ASSERT_TRUE(SendReport(&second, "panic: another\n", OpenProc("", O_DIRECTORY)));
  EXPECT_TRUE(IsClosed(second));
  EXPECT_THAT(collector_->Processes(), SizeIs(1));
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  ASSERT_THAT(capture->managed.reports, SizeIs(1));
  EXPECT_EQ(capture->managed.reports[0].text, "panic: no\n");
  EXPECT_TRUE(IsClosed(companion));
}

TEST_F(CrashTest, AProcessThatMeetsAFaultHasItsModulesLoadedAtOnce) {
  StartAndHandle();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  ASSERT_TRUE(agent.Send(stackd_message_header{STACKD_MSG_FAULT, sizeof(stackd_message_header)}));
  std::jthread helper([&] { agent.AwaitCommand(); });
  // Without that it would be a second.
  const int64_t begin_ns = MonotonicNs();
  ASSERT_TRUE(Eventually([&] { return __atomic_load_n(&agent.ring.header->modules_known, __ATOMIC_ACQUIRE) == 1; }));
  EXPECT_LT(MonotonicNs() - begin_ns, kNsPerSecond);
  agent.ring.header->tentative[0] = 1 + agent.WriteCrashSlots(1, 1);
  shutdown(agent.fd(), SHUT_RDWR);
  helper.join();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_TRUE(
      std::ranges::any_of(capture->map->mappings(), [](const Mapping& mapping) { return mapping.module != nullptr; }));
}

TEST_F(CrashTest, ARuntimeThatSaidNothingDidNotCrash) {
  StartAndHandle();
  FakeAgent silent(dir_), agent(dir_);
  ASSERT_EQ(silent.Register(Hello(1)), "");
  ASSERT_EQ(agent.Register(Hello(2)), "");
  ASSERT_TRUE(SendReport(&silent, ""));
  ASSERT_TRUE(SendReport(&agent, "panic: no\n"));
  silent.Close();
  ASSERT_TRUE(Eventually([&] { return collector_->Processes().size() == 1; }));
  agent.Close();
  auto capture = AwaitCrash();
  ASSERT_NE(capture, nullptr);
  EXPECT_EQ(capture->process.pid, 2);
  EXPECT_THAT(Crashes(), SizeIs(1));
}

// --- Out of the spool ---

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

// --- Many ---

TEST_F(CrashTest, AProcessThatDoesNotAnswerDoesNotHoldUpTheCrashesOfOthers) {
  StartAndHandle();
  std::vector<std::unique_ptr<FakeAgent>> agents;
  for (int i = 0; i < 100; i++) {
    agents.push_back(std::make_unique<FakeAgent>(dir_));
    ASSERT_EQ(agents.back()->Register(Hello(1000 + i)), "");
  }
  int64_t begin_ns = MonotonicNs();
  for (int i = 0; i < 100; i++) {
    agents[i]->Commit(agents[i]->WriteCrashSlots(1 + i, 1));
    ASSERT_TRUE(agents[i]->SayCrash());
  }
  for (auto& agent : agents) {
    ASSERT_TRUE(Eventually([&] { return agent->CrashPhase() == STACKD_CRASH_STORED; }));
  }
  EXPECT_LT(MonotonicNs() - begin_ns, 6 * kNsPerSecond) << "none of them answers: four at a time would take 12 s";
  EXPECT_GT(Counter("crashes_hurried"), 50);
}

}  // namespace
}  // namespace stackd
