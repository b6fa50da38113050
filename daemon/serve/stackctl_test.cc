// stackctl, as an operator runs it, against the service with fake stages behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/base/clock.h"
#include "daemon/serve/server.h"
#include "daemon/testing/fake_stages.h"

namespace stackd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

class StackctlTest : public testing::Test {
 protected:
  void SetUp() override {
    ResetFakes();
    char dir[] = "/tmp/stackctl_test_XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    store_ = std::move(*DumpStore::Open({.file = ":memory:"}));
    pipeline_ = std::make_unique<Pipeline>(collector_.get(), &symbolizer_, store_.get());
    server_ = std::move(*Server::Start({.collector = collector_.get(),
                                        .pipeline = pipeline_.get(),
                                        .store = store_.get(),
                                        .symbolizer = &symbolizer_,
                                        .dir = dir_,
                                        .store_file = ":memory:"},
                                       {}));
    Fakes().processes = {FakeProcess(7, "fake")};
    CaptureIs({{kFakeBias + 0x20, kFakeBias + 0x31}, {kFakeBias + 0x20, kFakeBias + 0x31}}, false);
  }

  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(dir_);
  }

  void CaptureIs(const std::vector<std::vector<uint64_t>>& stacks, bool partial) {
    std::lock_guard lock(Fakes().mutex);
    Fakes().capture = [=](const CaptureRequest&) {
      auto capture = FakeCapture(7, stacks);
      capture->partial = partial;
      return capture;
    };
  }

  std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  Outcome Run(const std::string& arguments) {
    std::string out = dir_ + "/out", err = dir_ + "/err";
    std::string command = "STACKD_DIR=" + dir_ + " client/stackctl " + arguments + " >" + out + " 2>" + err;
    int status = system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Read(out), Read(err)};
  }

  std::string dir_;
  std::unique_ptr<Collector> collector_ = FakeCollector();
  Symbolizer symbolizer_{{}};
  std::unique_ptr<DumpStore> store_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Server> server_;
};

TEST_F(StackctlTest, ListsProcesses) {
  Outcome ps = Run("ps");
  EXPECT_EQ(ps.exit_code, 0);
  EXPECT_THAT(ps.out, StartsWith("PID"));
  EXPECT_THAT(ps.out, HasSubstr("processes/7-100\n"));
  EXPECT_THAT(ps.err, IsEmpty());
  EXPECT_THAT(Run("ps -o json").out, HasSubstr("\"displayName\": \"fake\""));
}

TEST_F(StackctlTest, PrintsADumpOfTheOnlyProcess) {
  Outcome dump = Run("dump");
  EXPECT_EQ(dump.exit_code, 0);
  EXPECT_THAT(dump.out, HasSubstr("f20"));
  EXPECT_THAT(dump.err, IsEmpty());
  EXPECT_EQ(Run("show").out, dump.out);
  EXPECT_THAT(Run("dump 7 --all").out, HasSubstr("f20"));
  EXPECT_THAT(Run("dump fake -o json").out, StartsWith("{"));
  EXPECT_THAT(Run("dump processes/7-100 -f folded").out, HasSubstr("f30;f20 2\n"));
}

TEST_F(StackctlTest, StreamsADumpThatDoesNotFitIntoAnAnswer) {
  std::vector<std::vector<uint64_t>> stacks;
  for (uint64_t i = 0; i < 6000; ++i) {
    std::vector<uint64_t> stack{kFakeBias + 16 * i};
    for (uint64_t j = 0; j < 25; ++j) stack.push_back(kFakeBias + 64 * j + 1);
    stacks.push_back(stack);
  }
  CaptureIs(stacks, false);
  Outcome dump = Run("dump");
  EXPECT_EQ(dump.exit_code, 0);
  EXPECT_GT(dump.out.size(), 4u << 20);
  EXPECT_EQ(dump.out, Run("show").out);
}

TEST_F(StackctlTest, EndsWithFiveForAPartialDumpAndPrintsIt) {
  CaptureIs({{kFakeBias + 0x20}}, true);
  Outcome dump = Run("dump");
  EXPECT_EQ(dump.exit_code, 5);
  EXPECT_THAT(dump.out, HasSubstr("f20"));
  EXPECT_THAT(dump.err, HasSubstr("the dump is partial"));
}

TEST_F(StackctlTest, EndsWithThreeForWhatIsNotThere) {
  Outcome dump = Run("dump nobody");
  EXPECT_EQ(dump.exit_code, 3);
  EXPECT_THAT(dump.err, HasSubstr("no connected process is \"nobody\""));
  EXPECT_EQ(Run("show processes/7-100/dumps/20261121T031415926Z-1").exit_code, 3);
  EXPECT_EQ(Run("show").exit_code, 3);
  EXPECT_EQ(Run("delete processes/7-100/dumps/20261121T031415926Z-1").exit_code, 3);
}

TEST_F(StackctlTest, EndsWithTwoForANameThatTwoHave) {
  Fakes().processes = {FakeProcess(7, "fake"), FakeProcess(8, "fake")};
  Outcome dump = Run("dump fake");
  EXPECT_EQ(dump.exit_code, 2);
  EXPECT_THAT(dump.err, HasSubstr("processes/8-100"));
}

TEST_F(StackctlTest, EndsWithFourWithoutADaemon) {
  server_->Drain(0);
  Outcome ps = Run("ps");
  EXPECT_EQ(ps.exit_code, 4);
  EXPECT_THAT(ps.err, HasSubstr("cannot connect to unix:" + dir_ + "/api.sock: no such file. Is stackd running?"));
  EXPECT_EQ(Run("doctor").exit_code, 4);
}

TEST_F(StackctlTest, FollowsPagedListsToTheEnd) {
  for (int i = 0; i < 250; ++i) Fakes().processes.push_back(FakeProcess(1000 + i, "many"));
  Outcome ps = Run("ps");
  EXPECT_EQ(std::count(ps.out.begin(), ps.out.end(), '\n'), 252);
  for (int i = 0; i < 60; ++i)
    ASSERT_EQ(pipeline_->CreateDump("7-100", {.deadline_ns = MonotonicNs() + kNsPerSecond}).has_value(), true);
  Outcome list = Run("list");
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 61);
}

TEST_F(StackctlTest, ExportsToAFileThatIsWholeOrNotThere) {
  Run("dump");
  std::string file = dir_ + "/stacks.folded";
  EXPECT_EQ(Run("export -f folded --to " + file).exit_code, 0);
  EXPECT_THAT(Read(file), HasSubstr("f30;f20 2\n"));
  EXPECT_EQ(Run("export -f pprof --to " + file).exit_code, 0);
  EXPECT_THAT(Read(file), StartsWith("\x1f\x8b"));
  EXPECT_EQ(Run("export -f speedscope --to " + file).exit_code, 0);
  EXPECT_THAT(Read(file), HasSubstr(R"("name":"f20")"));
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));
  EXPECT_EQ(Run("export processes/7-100/dumps/20261121T031415926Z-1 --to " + dir_ + "/none").exit_code, 3);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/none"));
  Outcome unwritable = Run("export --to /nonexistent/file");
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_THAT(unwritable.err, HasSubstr("cannot write /nonexistent/file"));
}

TEST_F(StackctlTest, WritesAMinidumpToAFileAndNotToATerminal) {
  Run("dump");
  std::string file = dir_ + "/crash.dmp";
  EXPECT_EQ(Run("export -f minidump --to " + file).exit_code, 0);
  EXPECT_THAT(Read(file), StartsWith("MDMP"));
  EXPECT_THAT(Run("export -f minidump").out, StartsWith("MDMP"));
  // script gives it one, and ends with its exit code.
  Outcome terminal = Run("version >/dev/null; script -qec 'client/stackctl export -f minidump' /dev/null");
  EXPECT_EQ(terminal.exit_code, 2);
  EXPECT_THAT(terminal.out, HasSubstr("name a file with --to FILE"));
}

TEST_F(StackctlTest, DeletesADump) {
  Run("dump");
  std::string name = *store_->Newest();
  EXPECT_EQ(Run("delete " + name).exit_code, 0);
  EXPECT_EQ(Run("show " + name).exit_code, 3);
}

// A crash of the group `fingerprint`, as the stages in front of the store make it.
v1::Dump CrashNumber(int number, const std::string& fingerprint) {
  v1::Dump dump;
  dump.set_name("processes/7-100/dumps/crash-" + std::to_string(number));
  dump.mutable_process()->set_display_name("fake");
  dump.set_trigger(v1::Dump::CRASH);
  dump.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond + number);
  v1::Crash* crash = dump.mutable_crash();
  crash->set_id(std::to_string(number));
  crash->set_explanation("null dereference in " + fingerprint);
  crash->set_fingerprint(fingerprint);
  crash->set_fingerprint_rule("crash-1");
  crash->add_fingerprint_frames()->set_function("abort");
  crash->mutable_fingerprint_frames(0)->set_rule("noise: abort");
  crash->add_fingerprint_frames()->set_function("load");
  crash->mutable_fingerprint_frames(1)->set_used(true);
  return dump;
}

TEST_F(StackctlTest, ListsEqualCrashesThoseSeenLastFirst) {
  EXPECT_THAT(Run("groups").err, HasSubstr("no crash was seen"));
  ASSERT_TRUE(store_->Put(CrashNumber(1, "f1")));
  ASSERT_TRUE(store_->Put(CrashNumber(2, "f2")));
  ASSERT_TRUE(store_->Put(CrashNumber(3, "f1")));
  Outcome groups = Run("groups");
  EXPECT_EQ(groups.exit_code, 0);
  EXPECT_THAT(groups.out, StartsWith("COUNT"));
  EXPECT_THAT(groups.out, HasSubstr("fake       load      null dereference in f1\n1 ")) << "f1 was seen after f2";
  EXPECT_THAT(Run("groups --filter f2").out, Not(HasSubstr("f1")));
  EXPECT_THAT(Run("groups -o json").out, HasSubstr("\"crashCount\": \"2\""));
}

TEST_F(StackctlTest, ListsEqualHangsApart) {
  EXPECT_THAT(Run("groups --hangs").err, HasSubstr("no hang was dumped by a rule"));
  for (int i = 1; i <= 2; ++i) {
    v1::Dump hang = CrashNumber(i, "f1");
    hang.clear_crash();
    hang.set_trigger(v1::Dump::HANG);
    hang.mutable_hang()->set_explanation("2 threads wait for each other");
    hang.mutable_hang()->set_fingerprint("d1");
    ASSERT_TRUE(store_->Put(hang));
  }
  const Outcome groups = Run("groups --hangs");
  EXPECT_EQ(groups.exit_code, 0);
  EXPECT_THAT(groups.out, HasSubstr("FUNCTION  HANG"));
  EXPECT_THAT(groups.out, HasSubstr("2 threads wait for each other"));
  EXPECT_THAT(Run("groups --explain d1").out, HasSubstr("2 hangs of fake"));
  EXPECT_THAT(Run("groups").err, HasSubstr("no crash was seen"));
}

TEST_F(StackctlTest, ExplainsAFingerprint) {
  ASSERT_TRUE(store_->Put(CrashNumber(1, "f1")));
  Outcome explained = Run("groups --explain f1");
  EXPECT_EQ(explained.exit_code, 0);
  EXPECT_THAT(explained.out, HasSubstr("skipped  abort             noise: abort\n"));
  EXPECT_THAT(explained.out, HasSubstr("used     load"));
  EXPECT_THAT(explained.out, HasSubstr("processes/7-100/dumps/crash-1\n"));
  EXPECT_EQ(Run("groups --explain stackGroups/f1").out, explained.out);
  EXPECT_THAT(Run("groups --explain f1 -o json").out, HasSubstr("\"fingerprintFrames\""));
  EXPECT_EQ(Run("groups --explain f2").exit_code, 3);
  EXPECT_EQ(Run("groups --explain 'a b'").exit_code, 2);
}

TEST_F(StackctlTest, ListsCrashesWithWhatDied) {
  Run("dump");
  ASSERT_TRUE(store_->Put(CrashNumber(1, "f1")));
  Outcome list = Run("list --crashes");
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.out, HasSubstr("null dereference in f1  processes/7-100/dumps/crash-1\n"));
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 2);
  EXPECT_THAT(Run("list").out, HasSubstr("  CRASH  "));
}

TEST_F(StackctlTest, ListsHangsWithWhatHangs) {
  EXPECT_THAT(Run("list --hangs").err, HasSubstr("no hang is stored"));
  Run("dump");
  v1::Dump hang;
  hang.set_name("processes/7-100/dumps/hang-1");
  hang.set_trigger(v1::Dump::HANG);
  hang.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
  hang.mutable_hang()->set_explanation("2 threads wait for each other");
  ASSERT_TRUE(store_->Put(hang));
  Outcome list = Run("list --hangs");
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.out, HasSubstr("2 threads wait for each other  processes/7-100/dumps/hang-1\n"));
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 2);
  EXPECT_THAT(Run("list").out, HasSubstr("  HANG  "));
  EXPECT_EQ(Run("list --hangs --crashes").exit_code, 2);
}

TEST_F(StackctlTest, ComparesTwoDumps) {
  EXPECT_EQ(Run("diff").exit_code, 3);
  Run("dump");
  const std::string first = *store_->Newest();
  Outcome only_one = Run("diff");
  EXPECT_EQ(only_one.exit_code, 3);
  EXPECT_THAT(only_one.err, HasSubstr("no earlier dump"));
  CaptureIs({{kFakeBias + 0x40, kFakeBias + 0x31}, {kFakeBias + 0x20, kFakeBias + 0x31}}, false);
  Run("dump");
  Outcome diff = Run("diff");
  EXPECT_EQ(diff.exit_code, 0) << diff.err;
  EXPECT_THAT(diff.out, StartsWith("fake (pid 7): "));
  EXPECT_THAT(diff.out, HasSubstr("moved from f20 to f40"));
  EXPECT_EQ(Run("diff " + first).out, diff.out);
  EXPECT_EQ(Run("diff " + *store_->Newest() + " " + first).out, diff.out) << "in order of time";
  EXPECT_THAT(Run("diff -o json").out, HasSubstr("\"change\": \"MOVED\""));
  EXPECT_EQ(Run("diff nonsense").exit_code, 2);
}

TEST_F(StackctlTest, TakesSomeDumpsAndComparesThem) {
  Outcome samples = Run("dump fake --samples 3 --every 100ms");
  EXPECT_EQ(samples.exit_code, 0) << samples.err;
  EXPECT_EQ(store_->dump_count(), 3);
  EXPECT_THAT(samples.err, HasSubstr("dump 2 of 3: 2 threads, processes/7-100/dumps/"));
  EXPECT_THAT(samples.out, HasSubstr("fake (pid 7 on host): 2 threads"));
  EXPECT_THAT(samples.out, HasSubstr("3 dumps compared"));
  Outcome json = Run("dump --samples 2 --every 100ms -o json");
  EXPECT_THAT(json.out, StartsWith("{\"dump\": {"));
  EXPECT_THAT(json.out, HasSubstr(", \"comparison\": {"));
  EXPECT_THAT(json.out, testing::EndsWith("}\n}\n"));
}

TEST_F(StackctlTest, NamesADumpAnew) {
  EXPECT_EQ(Run("resymbolize").exit_code, 3);
  Run("dump");
  Outcome anew = Run("resymbolize");
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_EQ(anew.out, *store_->Newest() + "\n");
  EXPECT_THAT(anew.err, HasSubstr("named anew at"));
  EXPECT_THAT(Run("show").out, HasSubstr("f20"));
  ASSERT_TRUE(store_->Put(CrashNumber(1, "f1")));
  EXPECT_EQ(Run("resymbolize processes/7-100/dumps/crash-1").exit_code, 1);
}

TEST_F(StackctlTest, SaysWhenTheOutputCannotBeWritten) {
  Outcome dump = Run("ps >/dev/full; test $? = 1 && echo failed");
  EXPECT_THAT(dump.out, HasSubstr("failed"));
}

TEST_F(StackctlTest, PrintsHostileNamesHarmlessly) {
  Fakes().processes = {FakeProcess(7, "a\x1b[31m\nb")};
  EXPECT_THAT(Run("ps").out, HasSubstr("a\\x1b[31m\\x0ab"));
}

}  // namespace
}  // namespace stackd
