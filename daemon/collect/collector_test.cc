// What a Collector starts with, and whom it registers.
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <set>
#include <thread>

#include "daemon/collect/testing/collector_fixture.h"

namespace stackd {
namespace {

using CollectorTest = CollectorFixture;

// --- Start ---

TEST_F(CollectorTest, ASecondCollectorOnTheFolderIsRefusedInOneSentence) {
  StartAndStoreCrashes();
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
  StartAndStoreCrashes();
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, TheSocketIsRemovedAtTheEndAndTheFolderCanBeServedAgain) {
  StartAndStoreCrashes();
  collector_.reset();
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/" STACKD_SOCKET_NAME));
  StartAndStoreCrashes();
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
  StartAndStoreCrashes();
  auto result = AsNobody([&] { return FakeAgent(dir_).Register() == "" ? 0 : 1; });
  if (!result) GTEST_SKIP() << "this sandbox has no other user";
  EXPECT_EQ(*result, 0);
}

// --- Registration ---

TEST_F(CollectorTest, AProcessIsDescribedByItsHello) {
  StartAndStoreCrashes();
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
  Start({.locate = [](std::string_view hostname, std::string_view variables) {
    std::map<std::string, std::string, std::less<>> place;
    place["hostname"] = hostname;
    place["variables"] = variables;
    return place;
  }});
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
  StartAndStoreCrashes();
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
  StartAndStoreCrashes();
  FakeAgent agent(dir_);
  stackd_hello hello = Hello();
  memset(hello.name, 0xff, sizeof(hello.name));
  ASSERT_EQ(agent.Register(hello), "");
  ASSERT_TRUE(AwaitProcesses(1));
  EXPECT_EQ(collector_->Processes()[0].display_name, std::string(64, '?'));
}

TEST_F(CollectorTest, NeighbouringAbiVersionsAreRefusedByName) {
  StartAndStoreCrashes();
  for (uint32_t version : {STACKD_ABI_VERSION - 1, STACKD_ABI_VERSION + 1}) {
    stackd_hello hello = Hello();
    hello.abi_version = version;
    EXPECT_EQ(FakeAgent(dir_).Register(hello),
              "this daemon speaks ABI version 1, the agent version " + std::to_string(version));
  }
  EXPECT_EQ(Counter("agents_rejected"), 2);
}

TEST_F(CollectorTest, ProcessesThatClaimOnePidGetNumbers) {
  StartAndStoreCrashes();
  FakeAgent agents[] = {FakeAgent(dir_), FakeAgent(dir_), FakeAgent(dir_)};
  for (FakeAgent& agent : agents) ASSERT_EQ(agent.Register(Hello(5)), "");
  ASSERT_TRUE(AwaitProcesses(3));
  std::vector<std::string> ids;
  for (const ProcessDescription& process : collector_->Processes()) ids.push_back(process.id);
  EXPECT_THAT(ids, ElementsAre("5-1000-3", "5-1000-2", "5-1000"));
}

TEST_F(CollectorTest, MessagesThatAreNotAHelloAreRefused) {
  StartAndStoreCrashes();
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
  StartAndStoreCrashes();
  EXPECT_THAT(FakeAgent(dir_).Register(Hello(), {}), HasSubstr("files of procfs"));
  std::vector<Fd> two = OwnFiles();
  two.pop_back();
  EXPECT_THAT(FakeAgent(dir_).Register(Hello(), two), HasSubstr("files of procfs"));
  ExpectAGoodAgentIsServed();
}

TEST_F(CollectorTest, OnlyFilesOfProcfsAreTaken) {
  StartAndStoreCrashes();
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
  StartAndStoreCrashes();
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
  StartAndStoreCrashes();
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
  StartAndStoreCrashes();
  std::vector<std::unique_ptr<FakeAgent>> silent;
  for (int i = 0; i < 600; i++) silent.push_back(std::make_unique<FakeAgent>(dir_));
  ExpectAGoodAgentIsServed();
  EXPECT_GT(Counter("agents_rejected"), 0);
}

TEST_F(CollectorTest, AFloodOfConnectionsDoesNotKeepOthersOut) {
  StartAndStoreCrashes();
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop) FakeAgent(dir_).Send("x", 1);
  });
  for (int i = 0; i < 3; i++) ExpectAGoodAgentIsServed();
  stop = true;
  flood.join();
}

TEST_F(CollectorTest, AFloodOfMessagesDoesNotKeepOthersOut) {
  StartAndStoreCrashes();
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

// A TCP socket full of bytes that are not read: the thread that closes it last waits as long as its owner said.
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
  StartAndStoreCrashes();
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
  StartAndStoreCrashes({.max_processes = 2});
  FakeAgent first(dir_), second(dir_), third(dir_);
  ASSERT_EQ(first.Register(Hello(1)), "");
  ASSERT_EQ(second.Register(Hello(2)), "");
  EXPECT_EQ(third.Register(Hello(3)), "this daemon already serves 2 processes");
  first.Close();
  // It keeps its place until its ring was looked through.
  EXPECT_TRUE(Eventually([&] { return FakeAgent(dir_).Register(Hello(3)).empty(); }));
}

TEST_F(CollectorTest, OneUserCannotTakeAllPlaces) {
  StartAndStoreCrashes({.max_processes = 4});
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
  StartAndStoreCrashes();
  auto agent = std::make_unique<FakeAgent>(dir_);
  ASSERT_EQ(agent->Register(Hello(5)), "");
  ASSERT_TRUE(AwaitProcesses(1));
  agent.reset();
  ASSERT_TRUE(AwaitProcesses(0));
  auto capture = collector_->CaptureProcess("5-1000", In(kLongNs));
  ASSERT_FALSE(capture.has_value());
  EXPECT_EQ(capture.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace stackd
