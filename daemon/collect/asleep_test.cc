// Processes in which no thread of the agent runs until the daemon wakes one.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/collect/testing/collector_fixture.h"

namespace stackd {
namespace {

constexpr char kId[] = "5-1000";

class AsleepTest : public CollectorFixture {
 protected:
  AsleepTest() {
    // In all threads of this process, which is the one that the agents here say they are.
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGURG);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    Start();
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) == 0) bell_ = Fd(ends[0]), daemons_end_ = Fd(ends[1]);
  }

  static stackd_hello AsleepHello(int32_t pid) {
    stackd_hello hello = Hello(pid);
    hello.flags |= STACKD_HELLO_HAS_BELL;
    return hello;
  }

  bool SayHello(FakeAgent* agent, int32_t pid) { return agent->Send(AsleepHello(pid), OwnFiles()) && SendBell(agent); }

  bool SendBell(FakeAgent* agent) {
    stackd_bell bell{.header = {STACKD_MSG_BELL, sizeof(bell)}, .signal = SIGURG};
    std::vector<Fd> fds;
    fds.emplace_back(dup(daemons_end_.get()));
    return agent->Send(bell, fds);
  }

  static void Awake(FakeAgent* agent) {
    agent->Send(stackd_message_header{STACKD_MSG_AWAKE, sizeof(stackd_message_header)});
  }

  bool HasRung(int timeout_ms) {
    pollfd look{bell_.get(), POLLIN, 0};
    return poll(&look, 1, timeout_ms) == 1;
  }

  // Says hello as a process that sleeps, and waits until it is registered.
  void Register(FakeAgent* agent) {
    ASSERT_TRUE(SayHello(agent, 5));
    ASSERT_EQ(agent->Answer(), "");
    ASSERT_TRUE(AwaitProcesses(1));
  }

  // Captures while `helper` does the agent's part.
  Result<std::shared_ptr<Capture>> CaptureWhile(const std::function<void()>& helper) {
    const std::jthread thread(helper);
    return collector_->CaptureProcess(kId, In(kLongNs));
  }

  Fd bell_, daemons_end_;
};

TEST_F(AsleepTest, AProcessThatGoesOnIsRegisteredALittleLaterAndNotWoken) {
  FakeAgent agent(dir_);
  ASSERT_TRUE(SayHello(&agent, 5));
  EXPECT_EQ(agent.Answer(), "");
  EXPECT_TRUE(AwaitProcesses(1));
  EXPECT_FALSE(HasRung(0));
}

TEST_F(AsleepTest, AProcessThatEndsAtOnceIsNeverRegistered) {
  for (int i = 0; i < 300; i++) {
    FakeAgent agent(dir_);
    ASSERT_TRUE(SayHello(&agent, 1000 + i));
  }
  FakeAgent last(dir_);
  ASSERT_TRUE(SayHello(&last, 5));
  EXPECT_EQ(last.Answer(), "");
  EXPECT_TRUE(AwaitProcesses(1));
  EXPECT_LT(Counter("agents_accepted"), 300);
  EXPECT_EQ(Counter("agents_rejected"), 0);
}

TEST_F(AsleepTest, AThousandThatComeAtOnceAreAllRegistered) {
  std::vector<std::unique_ptr<FakeAgent>> agents;
  for (int i = 0; i < 1000; i++) {
    agents.push_back(std::make_unique<FakeAgent>(dir_));
    stackd_hello hello = AsleepHello(1000 + i);
    hello.flags &= ~static_cast<uint32_t>(STACKD_HELLO_HAS_MEM | STACKD_HELLO_HAS_MAPS | STACKD_HELLO_HAS_PROC);
    ASSERT_TRUE(agents.back()->Send(hello));
  }
  EXPECT_TRUE(AwaitProcesses(1000));
}

TEST_F(AsleepTest, ADumpWakesIt) {
  FakeAgent agent(dir_);
  ASSERT_NO_FATAL_FAILURE(Register(&agent));
  const auto capture = CaptureWhile([&] {
    if (!HasRung(10'000)) return;
    Awake(&agent);
    if (uint32_t seq = agent.AwaitCommand()) agent.AnswerDump(seq, 3);
  });
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 3u);
  EXPECT_FALSE((*capture)->partial);
}

TEST_F(AsleepTest, OneWhoseBellComesLateIsWokenForADumpThatWaits) {
  FakeAgent agent(dir_);
  ASSERT_TRUE(agent.Send(AsleepHello(5), OwnFiles()));
  ASSERT_TRUE(AwaitProcesses(1)) << "it is not waited for";
  ASSERT_EQ(agent.Answer(), "");
  const auto capture = CaptureWhile([&] {
    if (!Eventually([&] { return Counter("captures") == 1; })) return;
    SendBell(&agent);
    if (!HasRung(10'000)) return;
    Awake(&agent);
    if (uint32_t seq = agent.AwaitCommand()) agent.AnswerDump(seq, 3);
  });
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 3u);
}

TEST_F(AsleepTest, OneThatFallsAsleepWhileItIsAskedIsWokenAgain) {
  FakeAgent agent(dir_);
  ASSERT_TRUE(SayHello(&agent, 5));
  Awake(&agent);
  ASSERT_EQ(agent.Answer(), "");
  ASSERT_TRUE(AwaitProcesses(1));
  const auto capture = CaptureWhile([&] {
    const uint32_t seq = agent.AwaitCommand();
    if (seq == 0 || HasRung(0)) return;
    SendBell(&agent);
    if (!HasRung(10'000)) return;
    Awake(&agent);
    agent.AnswerDump(seq, 3);
  });
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 3u);
  EXPECT_FALSE((*capture)->partial);
}

TEST_F(AsleepTest, OneThatWakesByItselfIsRegisteredAtOnce) {
  FakeAgent agent(dir_);
  ASSERT_TRUE(agent.Send(AsleepHello(5), OwnFiles()));
  Awake(&agent);
  EXPECT_EQ(agent.Answer(), "");
  ASSERT_TRUE(AwaitProcesses(1));
  const auto capture = CaptureWhile([&] {
    if (uint32_t seq = agent.AwaitCommand()) agent.AnswerDump(seq, 2);
  });
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 2u);
}

TEST_F(AsleepTest, ItIsNotAskedWhatItSleepsIn) {
  FakeAgent agent(dir_);
  ASSERT_NO_FATAL_FAILURE(Register(&agent));
  auto sample = collector_->SampleWaits(kId, MonotonicNs() + kLongNs);
  ASSERT_TRUE(sample.has_value());
  EXPECT_TRUE(sample->empty());
  EXPECT_FALSE(HasRung(0));
}

TEST_F(AsleepTest, OneThatBlocksTheSignalIsNotWaitedForAndTheDumpSaysSo) {
  kill(getpid(), SIGURG);
  FakeAgent agent(dir_);
  ASSERT_NO_FATAL_FAILURE(Register(&agent));
  const int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess(kId, In(kLongNs));
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 2);
  ASSERT_TRUE(capture.has_value());
  EXPECT_TRUE((*capture)->partial);
  EXPECT_THAT((*capture)->notes, Contains(HasSubstr("it blocks the signal that starts one (SIGURG)")));
  signal(SIGURG, SIG_IGN);  // takes it off the queue
  signal(SIGURG, SIG_DFL);
}

TEST_F(AsleepTest, OneWithAFilterIsNotAskedAndSaysWhy) {
  FakeAgent agent(dir_);
  ASSERT_NO_FATAL_FAILURE(Register(&agent));
  stackd_filtered filtered{.header = {STACKD_MSG_FILTERED, sizeof(filtered)}, .filtered = 1, .pad = 0};
  ASSERT_TRUE(agent.Send(filtered));
  ASSERT_TRUE(Eventually([&] { return !collector_->Processes().front().limits.empty(); }));
  const int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess(kId, In(kLongNs));
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 2);
  ASSERT_TRUE(capture.has_value());
  EXPECT_TRUE((*capture)->partial);
  EXPECT_THAT((*capture)->notes, Contains(HasSubstr("STACKD_SECCOMP_DUMPS=1")));
  EXPECT_FALSE((*capture)->threads.empty()) << "the kernel lists them";
  EXPECT_FALSE(HasRung(0));
  // It could not put the filter in place.
  filtered.filtered = 0;
  ASSERT_TRUE(agent.Send(filtered));
  EXPECT_TRUE(Eventually([&] { return collector_->Processes().front().limits.empty(); }));
}

TEST_F(AsleepTest, ABellThatIsNoSocketOfDatagramsIsNotRung) {
  FakeAgent agent(dir_);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const Fd read_end(ends[0]);
  std::vector<Fd> fds;
  fds.emplace_back(ends[1]);
  stackd_bell bell{.header = {STACKD_MSG_BELL, sizeof(bell)}, .signal = SIGURG};
  ASSERT_TRUE(agent.Send(AsleepHello(5), OwnFiles()) && agent.Send(bell, fds));
  ASSERT_EQ(agent.Answer(), "");
  ASSERT_TRUE(AwaitProcesses(1));
  auto capture = collector_->CaptureProcess(kId, In(300 * kNsPerMs));
  char byte;
  EXPECT_EQ(read(read_end.get(), &byte, 1), -1);
}

}  // namespace
}  // namespace stackd
