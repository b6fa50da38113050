// What becomes of a crash out of a ring, of a process that is held or has ended.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "daemon/collect/testing/crash_fixture.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

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

bool SendReport(FakeAgent* agent, const std::string& text, Fd stat = {}) {
  stackd_report_file message{};
  message.header = {STACKD_MSG_REPORT_FILE, sizeof(message)};
  message.language = static_cast<uint32_t>(Language::kGo);
  strcpy(message.title, "Go traceback");
  std::vector<Fd> files;
  files.push_back(ReportFile(text));
  if (stat.valid()) files.push_back(std::move(stat));
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
  FakeAgent agent(dir_), with_folder(dir_), companion(dir_), other(dir_);
  ASSERT_EQ(agent.Register(), "");
  // A folder would lead to other files.
  ASSERT_TRUE(SendReport(&with_folder, "panic: no\n", OpenProc("", O_DIRECTORY)));
  EXPECT_TRUE(IsClosed(with_folder));
  ASSERT_TRUE(SendReport(&companion, "panic: no\n", OpenProc("stat")));
  stackd_name name{.header = {STACKD_MSG_NAME, sizeof(name)}, .name = "orders"};
  ASSERT_TRUE(companion.Send(name));
  ASSERT_TRUE(Eventually([&] {
    const auto processes = collector_->Processes();
    return processes.size() == 1 && processes[0].display_name == "orders";
  }));
  // A report of another process, or a second one of this, is refused.
  ASSERT_TRUE(SendReport(&other, "panic: another\n", Fd(open("/proc/1/stat", O_RDONLY | O_CLOEXEC))));
  EXPECT_TRUE(IsClosed(other));
  FakeAgent second(dir_);
  ASSERT_TRUE(SendReport(&second, "panic: another\n", OpenProc("stat")));
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
