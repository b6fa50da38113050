#include "daemon/collect/collector.h"

#include <dlfcn.h>
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/process/module_loader.h"
#include "daemon/testing/fake_agent.h"

namespace stackd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kLongNs = 20 * kNsPerSecond;

// Looks again every millisecond, for as long as a slow machine may need.
bool Eventually(const std::function<bool()>& holds, int64_t timeout_ns = kLongNs) {
  for (int64_t until_ns = MonotonicNs() + timeout_ns; MonotonicNs() < until_ns; usleep(1000)) {
    if (holds()) return true;
  }
  return holds();
}

CaptureRequest In(int64_t timeout_ns) { return {.deadline_ns = MonotonicNs() + timeout_ns}; }

std::string MakeDir() {
  std::string name = "/tmp/collector-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  EXPECT_EQ(chmod(name.c_str(), 0755), 0);
  return name;
}

class CollectorTest : public testing::Test {
 protected:
  CollectorTest() : dir_(MakeDir()) {}
  ~CollectorTest() override {
    collector_.reset();
    std::filesystem::remove_all(dir_);
  }

  void Start(uint32_t max_processes = 1024) {
    auto started = Collector::Start({.dir = dir_, .ring_bytes = 256u << 10, .max_processes = max_processes});
    ASSERT_TRUE(started.has_value()) << started.error().message;
    collector_ = std::move(*started);
    collector_->OnCrash([this](std::shared_ptr<Capture> capture, const std::function<void()>& release) {
      on_crash_(std::move(capture), release);
    });
  }

  bool AwaitProcesses(size_t count, int64_t timeout_ns = kLongNs) {
    return Eventually([&] { return collector_->Processes().size() == count; }, timeout_ns);
  }

  // A well-behaved agent is served at once, whatever others do.
  void ExpectAGoodAgentIsServed(int32_t pid = 4711) {
    FakeAgent good(dir_);
    int64_t begin_ns = MonotonicNs();
    ASSERT_EQ(good.Register(Hello(pid)), "");
    std::string id = std::to_string(pid) + "-1000";
    ASSERT_TRUE(Eventually([&] { return Find(id).id == id; }));
    std::thread helper([&] {
      if (uint32_t seq = good.AwaitCommand()) good.AnswerDump(seq, 3);
    });
    auto capture = collector_->CaptureProcess(id, In(kLongNs));
    helper.join();
    EXPECT_LT(MonotonicNs() - begin_ns, 5 * kNsPerSecond);
    ASSERT_TRUE(capture.has_value()) << capture.error().message;
    EXPECT_EQ((*capture)->threads.size(), 3u);
    EXPECT_FALSE((*capture)->partial);
    good.Close();
    ASSERT_TRUE(Eventually([&] { return Find(id).id.empty(); }));
  }

  ProcessDescription Find(const std::string& id) {
    for (ProcessDescription& process : collector_->Processes()) {
      if (process.id == id) return process;
    }
    return {};
  }

  int64_t Counter(const std::string& name) { return collector_->Counters()[name]; }

  const std::string dir_;
  std::function<void(std::shared_ptr<Capture>, const std::function<void()>&)> on_crash_ =
      [](std::shared_ptr<Capture>, const std::function<void()>& release) { release(); };
  std::unique_ptr<Collector> collector_;
};

// --- Start ---

TEST_F(CollectorTest, ASecondCollectorOnTheFolderIsRefusedInOneSentence) {
  Start();
  auto second = Collector::Start({.dir = dir_});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  EXPECT_EQ(second.error().message, "another stackd serves " + dir_ + ": stop it, or choose another folder with --dir");
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, AStaleSocketIsReplaced) {
  Fd stale(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (dir_ + "/" STACKD_SOCKET_NAME).copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(stale.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  stale.Reset();
  Start();
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, TheSocketIsRemovedAtTheEndAndTheFolderCanBeServedAgain) {
  Start();
  collector_.reset();
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/" STACKD_SOCKET_NAME));
  Start();
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, APathTooLongForASocketIsRefused) {
  auto started = Collector::Start({.dir = dir_ + "/" + std::string(120, 'x')});
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, Code::kInvalidArgument);
  EXPECT_THAT(started.error().message, HasSubstr("choose a shorter --dir"));
}

TEST_F(CollectorTest, AFolderWithoutAParentIsRefused) {
  auto started = Collector::Start({.dir = dir_ + "/a/b"});
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message, HasSubstr("cannot make the folder"));
}

TEST_F(CollectorTest, ARingThatCannotBeIsRefusedAtTheStart) {
  auto started = Collector::Start({.dir = dir_, .ring_bytes = 5});
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, Code::kInvalidArgument);
}

// Runs `child` in a process of another user; its result is the exit code.
std::optional<int> AsNobody(const std::function<int()>& child) {
  pid_t pid = fork();
  if (pid == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(99);
    prctl(PR_SET_DUMPABLE, 1);  // else it could not open its own files
    _exit(child());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 99) return std::nullopt;
  return WEXITSTATUS(status);
}

TEST_F(CollectorTest, AFolderThatCannotBeWrittenIsRefusedWithWhatToDo) {
  auto result = AsNobody([&] {
    auto started = Collector::Start({.dir = dir_});
    if (started) return 1;
    bool says_what_to_do = started.error().message.find("Give uid 65534 the right to") != std::string::npos;
    return started.error().code == Code::kFailedPrecondition && says_what_to_do ? 0 : 2;
  });
  if (!result) GTEST_SKIP() << "this sandbox has no other user";
  EXPECT_EQ(*result, 0);
}

TEST_F(CollectorTest, AProcessOfAnyUserMayRegister) {
  Start();
  auto result = AsNobody([&] { return FakeAgent(dir_).Register() == "" ? 0 : 1; });
  if (!result) GTEST_SKIP() << "this sandbox has no other user";
  EXPECT_EQ(*result, 0);
}

// --- Registration ---

TEST_F(CollectorTest, AProcessIsDescribedByItsHello) {
  Start();
  FakeAgent agent(dir_);
  stackd_hello hello = Hello(77);
  strcpy(hello.name, "frontend");
  strcpy(hello.hostname, "pod-7");
  ASSERT_EQ(agent.Register(hello), "");
  ASSERT_TRUE(AwaitProcesses(1));
  ProcessDescription process = collector_->Processes()[0];
  EXPECT_EQ(process.id, "77-1000");
  EXPECT_EQ(process.pid, 77);
  EXPECT_EQ(process.uid, static_cast<int32_t>(getuid())) << "the kernel's word, not the process's";
  EXPECT_EQ(process.display_name, "frontend");
  EXPECT_EQ(process.hostname, "pod-7");
  EXPECT_GT(process.thread_count, 0);
  EXPECT_THAT(process.limits, IsEmpty());
}

TEST_F(CollectorTest, WhereAProcessRunsIsLookedUpWithWhatStandsBehindItsHello) {
  auto started = Collector::Start({.dir = dir_, .locate = [](std::string_view hostname, std::string_view variables) {
                                     std::map<std::string, std::string, std::less<>> place;
                                     place["hostname"] = hostname;
                                     place["variables"] = variables;
                                     return place;
                                   }});
  ASSERT_TRUE(started) << started.error().message;
  collector_ = std::move(*started);
  struct {
    stackd_hello hello = Hello(77);
    char place[8] = "A=1\0B=2";
  } introduction;
  introduction.hello.header.size_bytes = sizeof(introduction);
  strcpy(introduction.hello.hostname, "pod-7");
  FakeAgent agent(dir_), without(dir_);
  ASSERT_TRUE(agent.Send(introduction, OwnFiles()));
  ASSERT_EQ(agent.Answer(), "");
  ASSERT_EQ(without.Register(Hello(78)), "");
  ASSERT_TRUE(AwaitProcesses(2));
  for (const ProcessDescription& process : collector_->Processes()) {
    const auto& place = process.resource_attributes;
    const bool has_place = process.pid == 77;
    EXPECT_EQ(place.at("hostname"), has_place ? "pod-7" : "");
    EXPECT_EQ(place.at("variables"), has_place ? std::string("A=1\0B=2", 8) : "");
  }
}

TEST_F(CollectorTest, ANameCanBeGivenLaterAndTakenBack) {
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  ASSERT_TRUE(AwaitProcesses(1));
  EXPECT_EQ(collector_->Processes()[0].display_name, "fake");
  stackd_name name{.header = {STACKD_MSG_NAME, sizeof(name)}, .name = "renamed"};
  ASSERT_TRUE(agent.Send(name));
  EXPECT_TRUE(Eventually([&] { return collector_->Processes()[0].display_name == "renamed"; }));
  memset(name.name, 0, sizeof(name.name));
  ASSERT_TRUE(agent.Send(name));
  EXPECT_TRUE(Eventually([&] { return collector_->Processes()[0].display_name == "fake"; }));
}

TEST_F(CollectorTest, TextThatIsNotUtf8IsMadeSo) {
  Start();
  FakeAgent agent(dir_);
  stackd_hello hello = Hello();
  memset(hello.name, 0xff, sizeof(hello.name));
  ASSERT_EQ(agent.Register(hello), "");
  ASSERT_TRUE(AwaitProcesses(1));
  EXPECT_EQ(collector_->Processes()[0].display_name, std::string(64, '?'));
}

TEST_F(CollectorTest, NeighbouringAbiVersionsAreRefusedByName) {
  Start();
  for (uint32_t version : {STACKD_ABI_VERSION - 1, STACKD_ABI_VERSION + 1}) {
    stackd_hello hello = Hello();
    hello.abi_version = version;
    EXPECT_EQ(FakeAgent(dir_).Register(hello),
              "this daemon speaks ABI version 1, the agent version " + std::to_string(version));
  }
  EXPECT_EQ(Counter("agents_rejected"), 2);
}

TEST_F(CollectorTest, ProcessesThatClaimOnePidGetNumbers) {
  Start();
  FakeAgent agents[] = {FakeAgent(dir_), FakeAgent(dir_), FakeAgent(dir_)};
  for (FakeAgent& agent : agents) ASSERT_EQ(agent.Register(Hello(5)), "");
  ASSERT_TRUE(AwaitProcesses(3));
  std::vector<std::string> ids;
  for (const ProcessDescription& process : collector_->Processes()) ids.push_back(process.id);
  EXPECT_THAT(ids, ElementsAre("5-1000-3", "5-1000-2", "5-1000"));
}

TEST_F(CollectorTest, MessagesThatAreNotAHelloAreRefused) {
  Start();
  FakeAgent watched(dir_);
  ASSERT_EQ(watched.Register(Hello(5)), "");

  FakeAgent other_type(dir_);
  stackd_name name{.header = {STACKD_MSG_NAME, sizeof(name)}, .name = "x"};
  ASSERT_TRUE(other_type.Send(name));
  EXPECT_EQ(other_type.Answer(), "the first message must be HELLO");

  FakeAgent too_short(dir_);
  stackd_hello hello = Hello();
  hello.header.size_bytes = sizeof(hello) - 1;
  ASSERT_TRUE(too_short.Send(&hello, sizeof(hello) - 1, OwnFiles()));
  EXPECT_EQ(too_short.Answer(), "the first message must be HELLO");

  FakeAgent lies_about_size(dir_);
  hello = Hello();
  hello.header.size_bytes = 20;
  ASSERT_TRUE(lies_about_size.Send(hello, OwnFiles()));
  EXPECT_EQ(lies_about_size.Answer(), "closed");

  FakeAgent less_than_a_header(dir_);
  ASSERT_TRUE(less_than_a_header.Send("abc", 3));
  EXPECT_EQ(less_than_a_header.Answer(), "closed");

  FakeAgent too_long(dir_);
  std::vector<char> long_message(10000);
  stackd_message_header header{STACKD_MSG_HELLO, 10000};
  memcpy(long_message.data(), &header, sizeof(header));
  ASSERT_TRUE(too_long.Send(long_message.data(), long_message.size()));
  EXPECT_EQ(too_long.Answer(), "closed");

  FakeAgent empty(dir_);
  ASSERT_TRUE(empty.Send("", 0));
  EXPECT_EQ(empty.Answer(), "closed");

  EXPECT_TRUE(AwaitProcesses(1));
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, AHelloWithoutTheFilesItPromisesIsRefused) {
  Start();
  EXPECT_THAT(FakeAgent(dir_).Register(Hello(), {}), HasSubstr("files of procfs"));
  std::vector<Fd> two = OwnFiles();
  two.pop_back();
  EXPECT_THAT(FakeAgent(dir_).Register(Hello(), two), HasSubstr("files of procfs"));
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, OnlyFilesOfProcfsAreTaken) {
  Start();
  std::string fifo = dir_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  Fd pipe_read(pipe_fds[0]), pipe_write(pipe_fds[1]);
  std::function<Fd()> kinds[] = {
      [&] { return Fd(dup(pipe_read.get())); },
      [&] { return Fd(open(fifo.c_str(), O_RDWR | O_NONBLOCK)); },
      [] { return Fd(socket(AF_INET, SOCK_STREAM, 0)); },
      [] { return Fd(memfd_create("maps", 0)); },
      [] { return Fd(open("/dev/zero", O_RDONLY)); },
      [] { return Fd(open("/", O_RDONLY | O_DIRECTORY)); },
      [] { return Fd(open("/proc/self/exe", O_RDONLY)); },
  };
  for (size_t kind = 0; kind < std::size(kinds); kind++) {
    for (size_t place = 0; place < 3; place++) {
      std::vector<Fd> fds = OwnFiles();
      fds[place] = kinds[kind]();
      ASSERT_TRUE(fds[place].valid());
      EXPECT_THAT(FakeAgent(dir_).Register(Hello(), fds), HasSubstr("files of procfs")) << kind << " as " << place;
    }
  }
  std::vector<Fd> folder_as_file = OwnFiles();
  std::swap(folder_as_file[1], folder_as_file[2]);
  EXPECT_THAT(FakeAgent(dir_).Register(Hello(), folder_as_file), HasSubstr("files of procfs"));
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, AProcessThatMayNotOpenItsFilesIsServedAndSaysSo) {
  Start();
  FakeAgent agent(dir_);
  stackd_hello hello = Hello(5);
  hello.flags = 0;
  ASSERT_EQ(agent.Register(hello, {}), "");
  ASSERT_TRUE(AwaitProcesses(1));
  EXPECT_EQ(collector_->Processes()[0].limits.size(), 2u);
  std::thread helper([&] {
    if (uint32_t seq = agent.AwaitCommand()) agent.AnswerDump(seq, 2);
  });
  auto capture = collector_->CaptureProcess("5-1000", In(kLongNs));
  helper.join();
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 2u);
  EXPECT_THAT((*capture)->notes, Contains(HasSubstr("its memory map could not be read")));
}

TEST_F(CollectorTest, FdsThatNobodyAskedForAreClosed) {
  Start();
  FakeAgent agent(dir_);
  ASSERT_EQ(agent.Register(), "");
  auto count_fds = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  auto before = count_fds();
  for (int i = 0; i < 50; i++) {
    std::vector<Fd> fds;
    for (int n = 0; n < 20; n++) fds.emplace_back(memfd_create("unasked", MFD_CLOEXEC));
    stackd_name name{.header = {STACKD_MSG_NAME, sizeof(name)}, .name = "x"};
    ASSERT_TRUE(agent.Send(name, fds));
    agent.SendFile(static_cast<uint32_t>(i), 0, fds);
  }
  EXPECT_TRUE(Eventually([&] { return count_fds() <= before; })) << count_fds() << " and before " << before;
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, SilentConnectionsDoNotKeepOthersOut) {
  Start();
  std::vector<std::unique_ptr<FakeAgent>> silent;
  for (int i = 0; i < 600; i++) silent.push_back(std::make_unique<FakeAgent>(dir_));
  ExpectAGoodAgentIsServed();
  EXPECT_GT(Counter("agents_rejected"), 0);
}

TEST_F(CollectorTest, AFloodOfConnectionsDoesNotKeepOthersOut) {
  Start();
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop) FakeAgent(dir_).Send("x", 1);
  });
  for (int i = 0; i < 3; i++) ExpectAGoodAgentIsServed();
  stop = true;
  flood.join();
}

TEST_F(CollectorTest, AFloodOfMessagesDoesNotKeepOthersOut) {
  Start();
  FakeAgent loud(dir_);
  ASSERT_EQ(loud.Register(Hello(5)), "");
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    stackd_name name{.header = {STACKD_MSG_NAME, sizeof(name)}, .name = "loud"};
    while (!stop) {
      loud.Send(name);
      loud.SendFile(1, 0, {});
    }
  });
  for (int i = 0; i < 3; i++) ExpectAGoodAgentIsServed();
  stop = true;
  flood.join();
}

// A TCP socket that was filled with what nobody reads: whoever closes it last waits as long as its owner said.
Fd LingeringSocket(std::vector<Fd>* other_ends) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size_bytes = sizeof(address);
  bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  listen(listener.get(), 1);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size_bytes);
  Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return {};
  other_ends->emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::vector<char> bytes(1 << 20);
  while (send(client.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  linger linger_for{.l_onoff = 1, .l_linger = 60};
  setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &linger_for, sizeof(linger_for));
  return client;
}

TEST_F(CollectorTest, SocketsThatLingerWhenClosedHoldUpNobody) {
  Start();
  std::vector<Fd> other_ends;
  {
    std::vector<Fd> fds;
    fds.push_back(LingeringSocket(&other_ends));
    if (!fds[0].valid()) GTEST_SKIP() << "this sandbox has no loopback";
    FakeAgent agent(dir_);
    ASSERT_TRUE(agent.Send(Hello(), fds));
    fds.clear();  // the daemon has the last one now
  }
  ExpectAGoodAgentIsServed(1);
  FakeAgent registered(dir_);
  ASSERT_EQ(registered.Register(Hello(5)), "");
  {
    std::vector<Fd> fds;
    fds.push_back(LingeringSocket(&other_ends));
    registered.SendFile(9, 0, fds);
    fds.clear();
  }
  ExpectAGoodAgentIsServed(2);
  // Left unread in the socket's queue, it is closed together with that.
  {
    FakeAgent leaves(dir_);
    leaves.Send("x", 1);
    std::vector<Fd> fds;
    fds.push_back(LingeringSocket(&other_ends));
    bool too_late = !leaves.Send("x", 1, fds);
    linger none{};
    if (too_late) setsockopt(fds[0].get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  }
  ExpectAGoodAgentIsServed(3);
  other_ends.clear();
}

TEST_F(CollectorTest, MoreProcessesThanPlacesAreRefused) {
  Start(2);
  FakeAgent first(dir_), second(dir_), third(dir_);
  ASSERT_EQ(first.Register(Hello(1)), "");
  ASSERT_EQ(second.Register(Hello(2)), "");
  EXPECT_EQ(third.Register(Hello(3)), "this daemon already serves 2 processes");
  first.Close();
  // It keeps its place until its ring was looked through.
  EXPECT_TRUE(Eventually([&] { return FakeAgent(dir_).Register(Hello(3)).empty(); }));
}

TEST_F(CollectorTest, OneUserCannotTakeAllPlaces) {
  Start(4);
  std::vector<std::unique_ptr<FakeAgent>> agents;
  for (int pid = 1; pid <= 4; pid++) {
    agents.push_back(std::make_unique<FakeAgent>(dir_));
    ASSERT_EQ(agents.back()->Register(Hello(pid)), "");
  }
  int ready[2], end[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(end), 0);
  std::thread other_user([&] {
    auto result = AsNobody([&] {
      FakeAgent first(dir_), second(dir_), third(dir_);
      bool share = first.Register(Hello(11)) == "" && second.Register(Hello(12)) == "";
      bool no_more = third.Register(Hello(13)) == "this daemon already serves 4 processes";
      [[maybe_unused]] ssize_t written = write(ready[1], share && no_more ? "y" : "n", 1);
      char byte;
      close(end[1]);
      return read(end[0], &byte, 1) == 0 ? 0 : 1;
    });
    if (!result) {
      EXPECT_EQ(write(ready[1], "s", 1), 1);
    }
  });
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  std::set<std::string> ids;
  for (const ProcessDescription& process : collector_->Processes()) ids.insert(process.id);
  close(end[1]);
  other_user.join();
  for (int fd : {ready[0], ready[1], end[0]}) close(fd);
  if (answer == 's') GTEST_SKIP() << "this sandbox has no other user";
  EXPECT_EQ(answer, 'y');
  EXPECT_THAT(ids, ElementsAre("1-1000", "11-1000", "12-1000", "2-1000")) << "the newest of the other user made room";
  EXPECT_EQ(Counter("agents_displaced"), 2);
}

TEST_F(CollectorTest, AConnectionThatEndsTakesItsProcessAlong) {
  Start();
  auto agent = std::make_unique<FakeAgent>(dir_);
  ASSERT_EQ(agent->Register(Hello(5)), "");
  ASSERT_TRUE(AwaitProcesses(1));
  agent.reset();
  ASSERT_TRUE(AwaitProcesses(0));
  auto capture = collector_->CaptureProcess("5-1000", In(kLongNs));
  ASSERT_FALSE(capture.has_value());
  EXPECT_EQ(capture.error().code, Code::kNotFound);
}

// --- Captures of an agent that is told what to do ---

class CaptureTest : public CollectorTest {
 protected:
  CaptureTest() {
    Start();
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

TEST_F(CollectorTest, AProcessWhoseGoroutinesDoNotRunIsNotWaitedFor) {
  Start();
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
  const Mapping* own = capture->map->Find(reinterpret_cast<uint64_t>(&MakeDir));
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
  const Mapping* own = early->map->Find(reinterpret_cast<uint64_t>(&MakeDir));
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
  own = capture->map->Find(reinterpret_cast<uint64_t>(&MakeDir));
  ASSERT_NE(own, nullptr);
  ASSERT_NE(own->module, nullptr);
  EXPECT_EQ(own->module->identity().inode, own->inode);
}

TEST_F(CollectorTest, DumpsThatProcessesAskForReachTheHandler) {
  Start();
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

TEST_F(CollectorTest, OfADumpForAnExceptionTheHandlerIsToldWhichInWhatThread) {
  Start();
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

TEST_F(CollectorTest, AProcessThatAsksWithoutEndIsRefusedAndDoesNotKeepOthersWaiting) {
  Start();
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

// --- Modules ---

TEST(ModuleCache, AFileHasInEachDumpTheNameThatItsProcessGaveIt) {
  ModuleCache cache;
  auto open_self = [] { return Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); };
  auto evil = cache.Get(open_self(), "/tmp/anything");
  auto honest = cache.Get(open_self(), "/usr/bin/program");
  auto again = cache.Get(open_self(), "/usr/bin/program");
  ASSERT_TRUE(evil && honest && again);
  EXPECT_EQ((*honest)->path(), "/usr/bin/program");
  EXPECT_EQ(*honest, *again) << "parsed once";
}

TEST(ModuleCache, AFileFromTheEndOfTimeIsNotAnOverflow) {
  Fd file(memfd_create("module", MFD_CLOEXEC));
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(self), {}};
  ASSERT_EQ(write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  timespec times[2] = {{INT64_MAX, 0}, {INT64_MAX, 999'999'999}};
  ASSERT_EQ(futimens(file.get(), times), 0);
  EXPECT_TRUE(ModuleCache().Get(std::move(file), "/lib/x.so").has_value());
}

TEST(ModuleCache, WhatIsNoElfFileIsNoModule) {
  EXPECT_FALSE(ModuleCache().Get(Fd(memfd_create("empty", MFD_CLOEXEC)), "x").has_value());
  EXPECT_FALSE(ModuleCache().Get(Fd(open("/", O_RDONLY | O_CLOEXEC)), "x").has_value());
}

// --- Real processes under the agent ---

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

class RealProcessTest : public CollectorTest {
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
  Start();
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
  Start();
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
  Start();
  Victim victim(dir_, {"threads", "20"});
  std::string id = AwaitThreads(victim.pid(), 22);
  ASSERT_FALSE(id.empty());
  // Which threads it has it tells by itself: as the detector asks it, every few seconds.
  ASSERT_TRUE(collector_->ReadMotion(id).has_value());
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

    Start();
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
  Start();
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
  Start();
  Victim victim(dir_, {"exec", "threads", "7"});
  std::string id = AwaitThreads(victim.pid(), 9);
  ASSERT_FALSE(id.empty());
  EXPECT_TRUE(AwaitProcesses(1));
  auto capture = collector_->CaptureProcess(id, In(kLongNs));
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ((*capture)->threads.size(), 9u);
}

TEST_F(RealProcessTest, AProcessCanAskForADumpOfItself) {
  Start();
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
  Start();
  Victim victim(dir_, {"hidden-by-mount", dir_});
  std::string id = AwaitThreads(victim.pid(), 3);
  if (id.empty() && waitpid(victim.pid(), nullptr, WNOHANG) != 0) GTEST_SKIP() << "this sandbox does not allow mounts";
  ASSERT_FALSE(id.empty());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/hidden.so"));
  ExpectModuleOfHiddenLibrary(collector_.get(), id);
}

TEST_F(RealProcessTest, AModuleThatWasDeletedIsCopiedFromMemory) {
  Start();
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
