// Captures of an agent that does as it is told, and dumps that processes ask for.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "daemon/collect/testing/collector_fixture.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

class CaptureTest : public CollectorFixture {
 protected:
  CaptureTest() {
    StartAndStoreCrashes();
    agent_ = std::make_unique<FakeAgent>(dir_);
    EXPECT_EQ(agent_->Register(Hello(5)), "");
    EXPECT_TRUE(AwaitProcesses(1));
  }

  // Captures while `helper` is the agent's helper thread.
  std::shared_ptr<Capture> CaptureWhile(const std::function<void()>& helper, int64_t timeout_ns = kLongNs) {
    std::thread thread(helper);
    int64_t begin_ns = MonotonicNs();
    auto capture = collector_->CaptureProcess("5-1000", In(timeout_ns));
    took_ns_ = MonotonicNs() - begin_ns;
    thread.join();
    EXPECT_TRUE(capture.has_value());
    return capture ? *capture : nullptr;
  }

  std::unique_ptr<FakeAgent> agent_;
  int64_t took_ns_ = 0;
};

TEST_F(CaptureTest, TakesEveryThread) {
  auto capture = CaptureWhile([&] { agent_->AnswerDump(agent_->AwaitCommand(), 500); });
  ASSERT_EQ(capture->threads.size(), 500u);
  EXPECT_FALSE(capture->partial);
  for (size_t i = 0; i < 500; i++) {
    const ThreadCapture& thread = capture->threads[i];
    EXPECT_EQ(thread.tid, static_cast<int32_t>(i + 1));
    EXPECT_EQ(thread.status, ThreadStatus::kCaptured);
    EXPECT_THAT(thread.stack.words(), ElementsAre(i + 1, 1));
  }
}

TEST_F(CaptureTest, TwoCallersAtOnceBothGetAllThreads) {
  std::thread helper([&] {
    for (int i = 0; i < 2; i++) agent_->AnswerDump(agent_->AwaitCommand(), 300);
  });
  std::vector<std::thread> callers;
  std::atomic<int> whole{0};
  for (int i = 0; i < 2; i++) {
    callers.emplace_back([&] {
      auto capture = collector_->CaptureProcess("5-1000", In(kLongNs));
      if (capture && (*capture)->threads.size() == 300 && !(*capture)->partial) whole++;
    });
  }
  for (std::thread& caller : callers) caller.join();
  helper.join();
  EXPECT_EQ(whole, 2);
}

TEST_F(CaptureTest, ACallerWhoseTurnDoesNotComeIsToldSo) {
  std::mutex mutex;
  std::condition_variable changed;
  bool running = false, second_done = false;
  std::thread helper([&] {
    uint32_t seq = agent_->AwaitCommand();
    std::unique_lock lock(mutex);
    running = true;
    changed.notify_all();
    changed.wait(lock, [&] { return second_done; });
    agent_->AnswerDump(seq, 1);
  });
  std::thread first([&] { EXPECT_TRUE(collector_->CaptureProcess("5-1000", In(kLongNs)).has_value()); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running; });
  }
  auto second = collector_->CaptureProcess("5-1000", In(10 * kNsPerMs));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kDeadlineExceeded);
  {
    std::lock_guard lock(mutex);
    second_done = true;
    changed.notify_all();
  }
  first.join();
  helper.join();
}

// A process that shares no memory, so that names come from its files alone.
class FilesTest : public CollectorFixture {
 protected:
  FilesTest() {
    StartAndStoreCrashes();
    agent_ = std::make_unique<FakeAgent>(dir_);
    stackd_hello hello = Hello(5);
    hello.flags = STACKD_HELLO_HAS_MAPS;
    hello.share = STACKD_SHARE_NAMES;
    std::vector<Fd> maps;
    maps.push_back(OpenProc("maps"));
    EXPECT_EQ(agent_->Register(hello, maps), "");
    EXPECT_TRUE(AwaitProcesses(1));
  }

  // Captures a process that passes no file before its threads have answered, and calls `answer_file` for those that it is
  // asked for afterwards.
  std::shared_ptr<Capture> CaptureOfABusyProcess(const std::function<void(const stackd_open_file&)>& answer_file) {
    std::thread helper([&] {
      agent_->AnswerDump(agent_->AwaitCommand([](const stackd_open_file&) {}), 1);
      while (auto received = agent_->Receive()) {
        if (received->type() == STACKD_MSG_OPEN_FILE) answer_file(received->As<stackd_open_file>());
      }
    });
    auto capture = collector_->CaptureProcess("5-1000", In(kLongNs));
    shutdown(agent_->fd(), SHUT_RDWR);
    helper.join();
    EXPECT_TRUE(capture.has_value());
    return capture ? *capture : nullptr;
  }

  std::unique_ptr<FakeAgent> agent_;
};

TEST_F(FilesTest, FilesThatCameTooLateAreAskedForAfterTheThreads) {
  const auto capture = CaptureOfABusyProcess([this](const stackd_open_file& request) {
    std::vector<Fd> file;
    file.emplace_back(open(request.path, O_RDONLY | O_CLOEXEC));
    agent_->SendFile(request.request_id, 0, file);
  });
  const auto code_avma = reinterpret_cast<uint64_t>(&OpenProc);
  const Mapping* mapping = capture->map->Find(code_avma);
  ASSERT_NE(mapping, nullptr);
  EXPECT_NE(mapping->module, nullptr) << "its own code has no module";
  EXPECT_THAT(capture->notes, Not(Contains(HasSubstr(mapping->path + " could not be had"))));
}

TEST_F(FilesTest, AProcessThatPassesNoFileIsNotWaitedForLongNorAskedForMore) {
  const int64_t begin_ns = MonotonicNs();
  const auto capture = CaptureOfABusyProcess([](const stackd_open_file&) {});
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 2);
  EXPECT_EQ(agent_->images_asked, 0) << "it would have to answer them before it gets to its files";
  EXPECT_THAT(capture->notes, Contains(HasSubstr("could not be had")));
}

using GoroutineTest = CollectorFixture;

TEST_F(GoroutineTest, AProcessWhoseGoroutinesDoNotRunIsNotWaitedFor) {
  StartAndStoreCrashes();
  FakeAgent agent(dir_);
  stackd_hello hello = Hello(5);
  hello.flags |= STACKD_HELLO_GOROUTINE;
  ASSERT_EQ(agent.Register(hello), "");
  ASSERT_TRUE(AwaitProcesses(1));
  const int64_t begin_ns = MonotonicNs();
  auto capture = collector_->CaptureProcess("5-1000", In(kLongNs));
  ASSERT_TRUE(capture.has_value());
  EXPECT_LT(MonotonicNs() - begin_ns, kLongNs / 2);
  EXPECT_TRUE((*capture)->partial);
  EXPECT_THAT((*capture)->notes, Contains("its threads were not asked: no goroutine of it came to run in 1 s"));
  EXPECT_TRUE(collector_->SampleWaits("5-1000", MonotonicNs() + kLongNs)->empty()) << "that is no command of its";
}

TEST_F(CaptureTest, AProcessThatEndsInTheMiddleLeavesWhatCame) {
  auto capture = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand();
    agent_->Begin(seq, 10);
    for (uint32_t tid = 1; tid <= 4; tid++) agent_->WriteThread(seq, tid);
    agent_->Close();
  });
  EXPECT_LT(took_ns_, 5 * kNsPerSecond) << "the deadline is not waited for";
  EXPECT_TRUE(capture->partial);
  EXPECT_EQ(capture->threads.size(), 4u);
  EXPECT_THAT(capture->notes, Contains("the process ended during the dump: 4 of 10 threads had answered"));
}

TEST_F(CaptureTest, AProcessThatNeverAnswersCostsTheDeadlineAndNoMore) {
  auto capture = CaptureWhile([] {}, 200 * kNsPerMs);
  EXPECT_LT(took_ns_, 3 * kNsPerSecond);
  EXPECT_TRUE(capture->partial);
  // It passed procfs files of this process, which the kernel vouches for.
  EXPECT_THAT(capture->threads, Contains(testing::Field(&ThreadCapture::tid, gettid())));
  for (const ThreadCapture& thread : capture->threads) EXPECT_NE(thread.status, ThreadStatus::kCaptured);
  ExpectAGoodAgentIsServed();
}

TEST_F(CaptureTest, AProcessThatNeverReadsItsSocketHoldsUpNobody) {
  std::thread stuck([&] {
    for (int i = 0; i < 3; i++) collector_->CaptureProcess("5-1000", In(300 * kNsPerMs));
  });
  for (int i = 0; i < 3; i++) ExpectAGoodAgentIsServed();
  stuck.join();
}

TEST_F(CaptureTest, ADeadlineFarAwayIsNotAnOverflow) {
  std::thread helper([&] { agent_->AnswerDump(agent_->AwaitCommand(), 1); });
  auto capture = collector_->CaptureProcess("5-1000", {.deadline_ns = INT64_MAX, .max_stack_bytes = ~0u});
  helper.join();
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 1u);
  EXPECT_EQ(agent_->ring.header->max_stack_bytes, 256u << 10) << "more would come back as corrupt";
}

TEST_F(CaptureTest, ADeadlineInThePastStillAccountsForTheThreads) {
  auto capture = CaptureWhile([] {}, -kNsPerSecond);
  EXPECT_TRUE(capture->partial);
  EXPECT_THAT(capture->threads, Contains(testing::Field(&ThreadCapture::tid, gettid())));
}

TEST_F(CaptureTest, RecordsOfAnEarlierDumpAreNotTaken) {
  auto capture = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand();
    agent_->WriteThread(seq - 1, 77);
    agent_->AnswerDump(seq, 2);
  });
  EXPECT_EQ(capture->threads.size(), 2u);
  EXPECT_EQ(Counter("ring_late_records"), 1);
}

TEST_F(CaptureTest, AThreadThatAnswersTwiceCountsOnce) {
  auto capture = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand();
    for (int i = 0; i < 5; i++) agent_->WriteThread(seq, 1);
    agent_->AnswerDump(seq, 2);
  });
  EXPECT_EQ(capture->threads.size(), 2u);
}

TEST_F(CaptureTest, ThreadsWithoutAnyRecordAreMissedOutLoud) {
  auto capture = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand();
    agent_->Begin(seq, 5);
    agent_->WriteThread(seq, 1);
    agent_->Finish(seq);
  });
  EXPECT_TRUE(capture->partial);
  EXPECT_THAT(capture->notes, Contains(HasSubstr("4 threads are missing")));
}

TEST_F(CaptureTest, AHeaderFullOfNonsenseCostsTheDeadlineAndNoMore) {
  std::atomic<bool> stop{false};
  std::thread scribbler([&] {
    uint64_t random = 88172645463325252ull;
    while (!stop) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      // All but done_seq, which would end the dump.
      stackd_ring_header* header = agent_->ring.header;
      auto number = static_cast<uint32_t>(random);
      header->command_seq = header->command = header->helper_sleeping = header->threads_listed = number;
      header->doorbell = header->reader_sleeping = header->maps_generation = header->slot_count = number;
      header->magic = header->deadline_ns = header->dropped[random % STACKD_DROP_REASONS] = random;
      header->begun_seq = number % 4;
      header->free[random % STACKD_BITMAP_WORDS] = random;
      header->ready[(random >> 8) % STACKD_BITMAP_WORDS] = random;
    }
  });
  for (int i = 0; i < 3; i++) {
    auto capture = CaptureWhile([] {}, 200 * kNsPerMs);
    EXPECT_LT(took_ns_, 10 * kNsPerSecond);
    EXPECT_TRUE(capture->partial);
  }
  stop = true;
  scribbler.join();
  ExpectAGoodAgentIsServed();
}

TEST_F(CaptureTest, FilesOfTheWrongKindAreNotRead) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  Fd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  auto capture = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand([&](const stackd_open_file& request) {
      std::vector<Fd> fds;
      switch (request.request_id % 8) {
        case 0:
          fds.emplace_back(dup(read_end.get()));  // a read would wait for ever
          break;
        case 1:
          fds.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
          break;
        case 2:
          fds.emplace_back(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
          break;
        case 3:
          fds.emplace_back(memfd_create("empty", MFD_CLOEXEC));
          break;
        case 4:
          break;  // says that one comes along, and none does
        case 5:
          fds.emplace_back(open("/bin/ls", O_RDONLY | O_CLOEXEC));  // not what is mapped
          break;
        case 6:
          agent_->SendFile(request.request_id, -EACCES, {});
          agent_->SendFile(request.request_id, 0, OwnFiles());  // a second answer
          return;
        case 7:
          agent_->SendFile(request.request_id + 100'000, 0, OwnFiles());  // to no question
          break;
      }
      agent_->SendFile(request.request_id, 0, fds);
    });
    agent_->AnswerDump(seq, 2);
  });
  EXPECT_LT(took_ns_, 10 * kNsPerSecond);
  EXPECT_EQ(capture->threads.size(), 2u);
  EXPECT_FALSE(capture->partial);
  for (const Mapping& mapping : capture->map->mappings()) {
    if (mapping.module != nullptr) {
      EXPECT_NE(mapping.module->path(), "/bin/ls");
    }
  }
}

// What a good agent does.
void SendFileAtPath(FakeAgent* agent, const stackd_open_file& request) {
  std::vector<Fd> fds;
  fds.emplace_back(open(request.path, O_RDONLY | O_CLOEXEC));
  int error = fds[0].valid() ? 0 : -ENOENT;
  if (error != 0) fds.clear();
  agent->SendFile(request.request_id, error, fds);
}

TEST_F(CaptureTest, AFileThatTheProcessSendsIsTheModule) {
  auto capture = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand([&](const stackd_open_file& request) { SendFileAtPath(agent_.get(), request); });
    agent_->AnswerDump(seq, 1);
  });
  const Mapping* own = capture->map->Find(reinterpret_cast<uint64_t>(&SendFileAtPath));
  ASSERT_NE(own, nullptr);
  ASSERT_NE(own->module, nullptr);
  EXPECT_EQ(own->module->path(), own->path);
  EXPECT_EQ(own->module->identity().inode, own->inode);
}

TEST_F(CaptureTest, FilesThatWereNotSentInTimeAreAskedForAgainInTheNextDump) {
  std::set<std::string> asked, asked_again;
  auto early = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand([&](const stackd_open_file& request) { asked.insert(request.path); });
    agent_->AnswerDump(seq, 1);
  });
  const Mapping* own = early->map->Find(reinterpret_cast<uint64_t>(&SendFileAtPath));
  ASSERT_NE(own, nullptr);
  ASSERT_TRUE(own->module == nullptr || own->module->identity().inode != own->inode);

  auto capture = CaptureWhile([&] {
    uint32_t seq = agent_->AwaitCommand([&](const stackd_open_file& request) {
      asked_again.insert(request.path);
      SendFileAtPath(agent_.get(), request);
    });
    agent_->AnswerDump(seq, 1);
  });
  EXPECT_THAT(asked, Not(IsEmpty()));
  EXPECT_EQ(asked_again, asked);
  own = capture->map->Find(reinterpret_cast<uint64_t>(&SendFileAtPath));
  ASSERT_NE(own, nullptr);
  ASSERT_NE(own->module, nullptr);
  EXPECT_EQ(own->module->identity().inode, own->inode);
}

// --- Dumps that processes ask for ---

using OwnDumpTest = CollectorFixture;

TEST_F(OwnDumpTest, DumpsThatProcessesAskForReachTheHandler) {
  StartAndStoreCrashes();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<OwnDumpRequest> asked;
  collector_->OnDumpRequest([&](const OwnDumpRequest& request) {
    std::lock_guard lock(mutex);
    asked.push_back(request);
    changed.notify_all();
  });
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(Hello(5)), "");
  stackd_dump_request request{.header = {STACKD_MSG_DUMP_REQUEST, sizeof(request)}};
  ASSERT_TRUE(agent.Send(request));
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return !asked.empty(); }));
  EXPECT_EQ(asked[0].process_id, "5-1000");
  EXPECT_FALSE(asked[0].exception);
}

TEST_F(OwnDumpTest, OfADumpForAnExceptionTheHandlerIsToldWhichInWhatThread) {
  StartAndStoreCrashes();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<OwnDumpRequest> asked;
  bool end = false;
  collector_->OnDumpRequest([&](const OwnDumpRequest& request) {
    std::unique_lock lock(mutex);
    asked.push_back(request);
    changed.notify_all();
    changed.wait(lock, [&] { return end; });
  });
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(Hello(5)), "");
  stackd_exception_request request{.header = {STACKD_MSG_DUMP_REQUEST, sizeof(request)}, .type = "ValueError"};
  // The second and third wait for the first.
  for (request.tid = 7; request.tid < 10; request.tid++) ASSERT_TRUE(agent.Send(request));
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return !asked.empty(); }));
  end = true;
  changed.notify_all();
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return asked.size() == 3; }));
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(asked[i].process_id, "5-1000");
    ASSERT_TRUE(asked[i].exception);
    EXPECT_EQ(asked[i].exception->tid, 7 + i);
    EXPECT_EQ(asked[i].exception->exception_type, "ValueError");
  }
}

TEST_F(OwnDumpTest, AProcessThatAsksWithoutEndIsRefusedAndDoesNotKeepOthersWaiting) {
  StartAndStoreCrashes();
  std::mutex mutex;
  std::condition_variable changed;
  int loud_dumps = 0;
  bool quiet_dumped = false, end = false;
  collector_->OnDumpRequest([&](const OwnDumpRequest& request) {
    std::unique_lock lock(mutex);
    if (request.process_id == "6-1000") {
      quiet_dumped = true;
      changed.notify_all();
      return;
    }
    loud_dumps++;
    changed.wait(lock, [&] { return end; });  // a dump that takes for ever
  });
  FakeAgent loud(dir_), quiet(dir_);
  ASSERT_EQ(loud.Register(Hello(5)), "");
  ASSERT_EQ(quiet.Register(Hello(6)), "");
  stackd_dump_request request{.header = {STACKD_MSG_DUMP_REQUEST, sizeof(request)}};
  for (int i = 0; i < 100; i++) ASSERT_TRUE(loud.Send(request));
  ASSERT_TRUE(Eventually([&] { return Counter("dump_requests_refused") >= 80; }));
  ASSERT_TRUE(quiet.Send(request));
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return quiet_dumped; }));
  end = true;
  changed.notify_all();
  lock.unlock();
  collector_.reset();
  EXPECT_LE(loud_dumps, 11);
}

}  // namespace
}  // namespace stackd
