#include "daemon/symbolize/symbolizer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/symbolize/test_programs.h"

namespace stackd {
namespace {

using testing::HasSubstr;

int64_t In(int64_t seconds) { return MonotonicNs() + seconds * kNsPerSecond; }

std::shared_ptr<const Module> OpenModule(const std::string& path) {
  auto module = Module::Open(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), path);
  EXPECT_TRUE(module.has_value()) << path;
  return module ? *module : nullptr;
}

std::vector<AddressQuery> Queries(const std::shared_ptr<const Module>& module, const std::vector<uint64_t>& svmas) {
  std::vector<AddressQuery> queries;
  for (uint64_t svma : svmas) queries.push_back({module, svma});
  return queries;
}

const std::string& Sample() {
  static const std::string path = [] {
    WriteFile("sample.cc", SampleSource());
    RunCommand("g++ -std=c++14 -O2 -g sample.cc -o sample 2>&1");
    return TestFolder() + "/sample";
  }();
  return path;
}

uint64_t SvmaOf(const std::string& file, const std::string& symbol) {
  return strtoull(RunCommand("nm '" + file + "' | sed -n 's/ [tTwW] " + symbol + "$//p'").c_str(), nullptr, 16);
}

// Workers of this process: three at most.
std::vector<pid_t> Workers() {
  std::vector<pid_t> pids;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::istringstream in(ReadFile(task.path().string() + "/children"));
    for (pid_t pid; in >> pid;) {
      if (ReadFile("/proc/" + std::to_string(pid) + "/comm") == "stackd-symbols\n") pids.push_back(pid);
    }
  }
  return pids;
}

// Each lane starts its worker when it has work first; an answer may come before both have.
std::vector<pid_t> BothWorkers() {
  std::vector<pid_t> workers;
  for (int64_t end_ns = In(30); workers.size() < 2 && MonotonicNs() < end_ns; sched_yield()) workers = Workers();
  EXPECT_EQ(workers.size(), 2u);
  return workers;
}

// The worker that reads debug data as long as none is late: it has the largest part of the memory.
pid_t FirstForLines(const SymbolizerOptions& options) {
  const std::string limit = std::to_string(options.worker_memory_limit_bytes / 8 * 5);
  for (pid_t worker : BothWorkers()) {
    if (ReadFile("/proc/" + std::to_string(worker) + "/cmdline").find(limit) != std::string::npos) return worker;
  }
  ADD_FAILURE() << "no worker has a limit of " << limit << " bytes";
  return -1;
}

uint64_t AnonymousBytes(pid_t pid) {
  std::istringstream in(ReadFile("/proc/" + std::to_string(pid) + "/statm"));
  uint64_t total = 0, resident = 0, shared = 0;
  in >> total >> resident >> shared;
  return (resident - shared) * 4096;
}

SymbolizerOptions NoDebugFiles() {
  SymbolizerOptions options;
  options.debug_dirs = {TestFolder() + "/none"};
  return options;
}

TEST(Symbolizer, NamesAFunctionWithItsFileAndLine) {
  Symbolizer symbolizer({});
  auto module = OpenModule(Sample());
  auto locations = symbolizer.Symbolize(Queries(module, {SvmaOf(Sample(), "plain_c")}), In(30));
  ASSERT_EQ(locations.size(), 1u);
  ASSERT_FALSE(locations[0]->frames.empty());
  EXPECT_EQ(locations[0]->frames.back().function, "plain_c");
  EXPECT_THAT(locations[0]->frames.back().file, HasSubstr("sample.cc"));
  EXPECT_GT(locations[0]->frames.back().line, 0);
  EXPECT_EQ(locations[0]->unnamed_reason, "");
  EXPECT_EQ(symbolizer.Quality(*module), SymbolQuality::kDwarf);
  EXPECT_EQ(symbolizer.worker_restarts(), 0);
}

TEST(Symbolizer, NamesVariablesWithoutReadingDebugData) {
  WriteFile("variables.cc", "namespace bank { long g_accounts[4]; }\nint main() { return bank::g_accounts[0]; }\n");
  RunCommand("g++ -g variables.cc -o variables 2>&1");
  const std::string path = TestFolder() + "/variables";
  const uint64_t svma =
      strtoull(RunCommand("nm '" + path + "' | sed -n 's/ B _ZN4bank10g_accountsE$//p'").c_str(), nullptr, 16);
  ASSERT_NE(svma, 0u);
  const auto module = OpenModule(path);
  Symbolizer symbolizer({});
  EXPECT_THAT(symbolizer.NameVariables(Queries(module, {svma, svma + 31, svma + (1 << 20)}), In(30)),
              testing::ElementsAre("bank::g_accounts", "bank::g_accounts", ""));
  EXPECT_EQ(symbolizer.Quality(*module), SymbolQuality::kSymtab);
}

TEST(Symbolizer, AnswersInTheOrderOfTheQueriesOverSeveralModules) {
  Symbolizer symbolizer(NoDebugFiles());
  auto sample = OpenModule(Sample()), self = OpenModule("/proc/self/exe");
  uint64_t plain_c = SvmaOf(Sample(), "plain_c"), main = SvmaOf(Sample(), "main");
  std::vector<AddressQuery> queries = {{sample, main}, {self, 1}, {sample, plain_c},
                                       {sample, main}, {self, 2}, {sample, plain_c}};
  auto locations = symbolizer.Symbolize(queries, In(30));
  ASSERT_EQ(locations.size(), queries.size());
  for (int i : {0, 3}) EXPECT_EQ(locations[i]->frames.back().function, "main");
  for (int i : {2, 5}) EXPECT_EQ(locations[i]->frames.back().function, "plain_c");
  for (int i : {1, 4}) {
    EXPECT_TRUE(locations[i]->frames.empty());
    EXPECT_EQ(locations[i]->unnamed_reason, "no symbol covers this address");
  }
}

TEST(Symbolizer, AnswersFromItsCacheWithoutAWorker) {
  Symbolizer symbolizer(NoDebugFiles());
  auto queries = Queries(OpenModule(Sample()), TextAddresses(Sample(), 16));
  auto first = symbolizer.Symbolize(queries, In(30));
  auto second = symbolizer.Symbolize(queries, MonotonicNs());  // no time at all
  EXPECT_EQ(first, second) << "the same objects";
}

TEST(Symbolizer, FindsADebugFileThatCameLaterWhenToldToForget) {
  Sample();
  const std::string dir = TestFolder() + "/late_debug";
  const std::string build_id = RunCommand("eu-readelf -n sample | sed -n 's/.*Build ID: //p' | tr -d '\\n'");
  ASSERT_GT(build_id.size(), 2u);
  RunCommand("mkdir -p late_debug/.build-id/" + build_id.substr(0, 2) + " && strip -o late_stripped sample");
  Symbolizer symbolizer({.debug_dirs = {dir}});
  auto module = OpenModule(TestFolder() + "/late_stripped");
  const auto queries = Queries(module, {SvmaOf(Sample(), "main")});
  const auto unnamed = symbolizer.Symbolize(queries, In(20));
  EXPECT_TRUE(unnamed[0]->frames.empty());
  EXPECT_THAT(unnamed[0]->unnamed_reason, HasSubstr("was not found in"));

  RunCommand("cp sample late_debug/.build-id/" + build_id.substr(0, 2) + "/" + build_id.substr(2) + ".debug");
  EXPECT_TRUE(symbolizer.Symbolize(queries, In(20))[0]->frames.empty()) << "what was found is in the cache";
  symbolizer.Forget(*module);
  const auto named = symbolizer.Symbolize(queries, In(20));
  ASSERT_FALSE(named[0]->frames.empty());
  EXPECT_EQ(named[0]->frames.back().function, "main");
  EXPECT_GT(named[0]->frames.back().line, 0);
}

TEST(Symbolizer, NamesWhatItCanWhenTheDeadlineIsOver) {
  Symbolizer symbolizer(NoDebugFiles());
  auto queries = Queries(OpenModule(Sample()), {SvmaOf(Sample(), "plain_c")});
  auto locations = symbolizer.Symbolize(queries, MonotonicNs() - 1);
  EXPECT_TRUE(locations[0]->frames.empty());
  EXPECT_EQ(locations[0]->unnamed_reason, "not named within the deadline");
  // It was looked up all the same.
  locations = symbolizer.Symbolize(queries, In(30));
  EXPECT_EQ(locations[0]->frames.back().function, "plain_c");
}

// Starts another answer while the worker for lines is stopped.
TEST(Symbolizer, GivesNamesWhileLinesAreNotThereYet) {
  Symbolizer symbolizer(NoDebugFiles());
  auto module = OpenModule(Sample());
  symbolizer.Symbolize(Queries(module, {SvmaOf(Sample(), "main")}), In(30));
  std::vector<pid_t> workers = BothWorkers();
  // Either may be the one for lines: with one stopped, there are names or nothing, never lines, in one case of two.
  std::vector<std::string> reasons;
  for (pid_t worker : workers) {
    kill(worker, SIGSTOP);
    uint64_t svma = SvmaOf(Sample(), "plain_c") + reasons.size();
    auto locations = symbolizer.Symbolize(Queries(module, {svma}), MonotonicNs() + 300 * kNsPerMs);
    reasons.push_back(locations[0]->unnamed_reason);
    if (!reasons.back().empty()) {
      EXPECT_EQ(locations[0]->frames.at(0).function, "plain_c");
      EXPECT_EQ(locations[0]->frames.at(0).line, 0);
    }
    kill(worker, SIGCONT);
    locations = symbolizer.Symbolize(Queries(module, {svma}), In(30));
    EXPECT_EQ(locations[0]->unnamed_reason, "");
    EXPECT_GT(locations[0]->frames.at(0).line, 0);
  }
  EXPECT_THAT(reasons, testing::UnorderedElementsAre("", "no lines: the debug data was not read within the deadline"));
}

TEST(Symbolizer, RunsItsWorkersWithoutRights) {
  Symbolizer symbolizer(NoDebugFiles());
  symbolizer.Symbolize(Queries(OpenModule(Sample()), {SvmaOf(Sample(), "main")}), In(30));
  for (pid_t worker : BothWorkers()) {
    std::string proc = "/proc/" + std::to_string(worker);
    // A worker that has just started may not have installed its filter yet.
    std::string status;
    for (int64_t end_ns = In(30); MonotonicNs() < end_ns && status.find("Seccomp:\t2") == std::string::npos;
         sched_yield()) {
      status = ReadFile(proc + "/status");
    }
    EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
    EXPECT_THAT(ReadFile(proc + "/limits"), testing::ContainsRegex("Max core file size +0 "));
    EXPECT_EQ(ReadFile(proc + "/environ"), std::string("STACKD_SYMBOLIZE_WORKER=1\0STACKD_DISABLE=1\0", 43));
    // Nothing of ours: the socket, a module, /proc/self/statm and /dev/null.
    for (const auto& fd : std::filesystem::directory_iterator(proc + "/fd")) {
      EXPECT_THAT(std::filesystem::read_symlink(fd).string(),
                  testing::AnyOf(HasSubstr("socket:"), HasSubstr("/sample"), HasSubstr("/statm"), "/dev/null"));
    }
  }
}

TEST(Symbolizer, StartsAWorkerThatWasKilledAgainAndStillAnswers) {
  Symbolizer symbolizer(NoDebugFiles());
  auto module = OpenModule(Sample());
  std::vector<uint64_t> svmas = TextAddresses(Sample());
  symbolizer.Symbolize(Queries(module, {svmas[0]}), In(30));
  for (int round = 1; round <= 5; ++round) {
    for (pid_t worker : BothWorkers()) kill(worker, SIGKILL);
    std::vector<uint64_t> some(svmas.begin() + round * 100, svmas.begin() + (round + 1) * 100);
    auto locations = symbolizer.Symbolize(Queries(module, some), In(30));
    for (const auto& location : locations) EXPECT_THAT(location->unnamed_reason, testing::Not(HasSubstr("symbol worker")));
    // The one for names may have been noticed later than the answer came.
    EXPECT_GE(symbolizer.worker_restarts(), round);
    EXPECT_LE(symbolizer.worker_restarts(), 2 * round);
  }
}

TEST(Symbolizer, ReadsLinesOfAModuleWhileAnotherKeepsTheFirstWorkerBusy) {
  const SymbolizerOptions options = NoDebugFiles();
  Symbolizer symbolizer(options);
  auto slow = OpenModule(Sample());
  symbolizer.Symbolize(Queries(slow, {SvmaOf(Sample(), "main")}), In(30));
  const pid_t first = FirstForLines(options);
  ASSERT_GT(first, 0);
  kill(first, SIGSTOP);
  const std::vector<AddressQuery> held_up = Queries(slow, {SvmaOf(Sample(), "plain_c")});
  EXPECT_EQ(symbolizer.Symbolize(held_up, MonotonicNs() + 100 * kNsPerMs)[0]->frames.at(0).line, 0);
  auto other = OpenModule(WriteFile("other", ReadFile(Sample())));
  const auto locations =
      symbolizer.Symbolize(Queries(other, {SvmaOf(Sample(), "main"), SvmaOf(Sample(), "plain_c")}), In(10));
  for (const auto& location : locations) EXPECT_GT(location->frames.at(0).line, 0) << location->unnamed_reason;
  kill(first, SIGCONT);
  EXPECT_GT(symbolizer.Symbolize(held_up, In(30))[0]->frames.at(0).line, 0);
  EXPECT_EQ(symbolizer.worker_restarts(), 0);
}

TEST(Symbolizer, GivesWhatNeedsMoreMemoryThanTheSecondWorkerHasToTheFirst) {
  // As below, a fifth of it: more than an eighth of the limit, and less than five.
  WriteFile("large.c",
            "int long_one(int x) { __asm__(\".rept 60000\\n nop\\n .loc 1 1\\n nop\\n .loc 1 2\\n .endr\"); return x; }\n"
            "int main(void) { return long_one(1); }\n");
  RunCommand("gcc -g -o large large.c 2>&1");
  SymbolizerOptions options = NoDebugFiles();
  options.worker_memory_limit_bytes = 40 << 20;
  Symbolizer symbolizer(options);
  auto slow = OpenModule(Sample());
  symbolizer.Symbolize(Queries(slow, {SvmaOf(Sample(), "main")}), In(30));
  const pid_t first = FirstForLines(options);
  ASSERT_GT(first, 0);
  kill(first, SIGSTOP);
  symbolizer.Symbolize(Queries(slow, {SvmaOf(Sample(), "plain_c")}), MonotonicNs() + 100 * kNsPerMs);
  const std::vector<AddressQuery> large =
      Queries(OpenModule(TestFolder() + "/large"), {SvmaOf(TestFolder() + "/large", "long_one") + 1000});
  const int64_t end_ns = In(30);
  while (symbolizer.worker_restarts() == 0 && MonotonicNs() < end_ns) {
    EXPECT_EQ(symbolizer.Symbolize(large, MonotonicNs() + 100 * kNsPerMs)[0]->frames.at(0).line, 0);
  }
  EXPECT_EQ(symbolizer.worker_restarts(), 1);
  kill(first, SIGCONT);
  EXPECT_GT(symbolizer.Symbolize(large, In(30))[0]->frames.at(0).line, 0);
  EXPECT_EQ(symbolizer.worker_restarts(), 1);
}

TEST(Symbolizer, AnswersWhileWorkersAreKilledInTheMiddleOfRequests) {
  Symbolizer symbolizer(NoDebugFiles());
  std::atomic<bool> done = false;
  std::thread killer([&] {
    // Faster than requests are answered at times, slower at others.
    for (int pause_us = 500; !done; pause_us = pause_us * 3 % 40'000 + 100) {
      for (pid_t worker : Workers()) kill(worker, SIGKILL);
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    }
  });
  for (int round = 0; round < 10; ++round) {
    // A copy is another file: what killed workers before is no matter.
    std::string copy = WriteFile("copy" + std::to_string(round), ReadFile(Sample()));
    auto locations = symbolizer.Symbolize(Queries(OpenModule(copy), TextAddresses(Sample(), 32)), In(60));
    for (const auto& location : locations) {
      bool explained = !location->unnamed_reason.empty();
      bool whole = !location->frames.empty() && location->frames.front().line > 0;
      EXPECT_TRUE(explained || whole);
      EXPECT_THAT(location->unnamed_reason, testing::Not(HasSubstr("deadline")));
    }
  }
  done = true;
  killer.join();
  EXPECT_GT(symbolizer.worker_restarts(), 0);
}

TEST(Symbolizer, SparesTheWorkersAModuleThatKilledThemTwice) {
  // A line table of 600,000 rows for one function: small in the file, 60 MB in memory.
  WriteFile("big.c",
            "int long_one(int x) { __asm__(\".rept 300000\\n nop\\n .loc 1 1\\n nop\\n .loc 1 2\\n .endr\"); return x; }\n"
            "int main(void) { return long_one(1); }\n");
  RunCommand("gcc -g -o big big.c 2>&1");
  SymbolizerOptions options = NoDebugFiles();
  options.worker_memory_limit_bytes = 24 << 20;
  Symbolizer symbolizer(options);
  auto module = OpenModule(TestFolder() + "/big");
  auto locations = symbolizer.Symbolize(Queries(module, {SvmaOf(TestFolder() + "/big", "long_one") + 1000}), In(60));
  ASSERT_EQ(locations[0]->frames.size(), 1u) << locations[0]->unnamed_reason;
  EXPECT_EQ(locations[0]->frames[0].function, "long_one");
  EXPECT_EQ(locations[0]->unnamed_reason, "no lines: reading the debug data of big needed more than 15 MiB");
  EXPECT_EQ(symbolizer.worker_restarts(), 2);
  // Others are not spared.
  locations = symbolizer.Symbolize(Queries(OpenModule(Sample()), {SvmaOf(Sample(), "plain_c")}), In(60));
  EXPECT_GT(locations[0]->frames.at(0).line, 0);
  EXPECT_EQ(symbolizer.worker_restarts(), 2);
}

TEST(Symbolizer, KeepsTheMemoryOfItsWorkersBelowTheLimit) {
  SymbolizerOptions options = NoDebugFiles();
  options.worker_memory_limit_bytes = 64 << 20;
  options.cache_limit_bytes = 1 << 20;
  Symbolizer symbolizer(options);
  uint64_t most_bytes = 0;
  for (int round = 0; round < 30; ++round) {
    std::string copy = WriteFile("copy", ReadFile(Sample()));
    symbolizer.Symbolize(Queries(OpenModule(copy), TextAddresses(Sample(), 8)), In(60));
    RunCommand("rm copy");
    uint64_t bytes = 0;
    for (pid_t worker : Workers()) bytes += AnonymousBytes(worker);
    most_bytes = std::max(most_bytes, bytes);
  }
  EXPECT_LT(most_bytes, options.worker_memory_limit_bytes);
  EXPECT_EQ(symbolizer.worker_restarts(), 0);
}

TEST(Symbolizer, SaysWhyASectionThatClaimsToBeHugeIsNotRead) {
  RunCommand("g++ -std=c++14 -O2 -g -gz=zlib -o bomb sample.cc");
  std::string bytes = ReadFile(TestFolder() + "/bomb");
  // The size in the compression header of .debug_info.
  size_t offset = strtoull(
      RunCommand("readelf -SW bomb | sed -n 's/.* \\.debug_info *[A-Z]* *[0-9a-f]* \\([0-9a-f]*\\) .*/\\1/p'").c_str(),
      nullptr, 16);
  ASSERT_GT(offset, 0u);
  uint64_t huge = 1ull << 40;
  memcpy(bytes.data() + offset + 8, &huge, sizeof(huge));
  Symbolizer symbolizer(NoDebugFiles());
  auto module = OpenModule(WriteFile("bomb", bytes));
  auto locations = symbolizer.Symbolize(Queries(module, {SvmaOf(TestFolder() + "/bomb", "plain_c")}), In(30));
  EXPECT_EQ(locations[0]->frames.at(0).function, "plain_c");
  EXPECT_THAT(locations[0]->unnamed_reason, HasSubstr("needs more than"));
  EXPECT_EQ(symbolizer.worker_restarts(), 0);
}

TEST(Symbolizer, SurvivesFilesThatChangeOrAreCutWhileTheyAreMapped) {
  Symbolizer symbolizer(NoDebugFiles());
  std::string path = WriteFile("shrinking", ReadFile(Sample()));
  auto module = OpenModule(path);
  std::vector<uint64_t> svmas = TextAddresses(Sample(), 64);
  symbolizer.Symbolize(Queries(module, {svmas[0]}), In(30));
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  auto locations = symbolizer.Symbolize(Queries(module, svmas), In(30));
  for (const auto& location : locations) EXPECT_THAT(location->unnamed_reason, testing::Not(HasSubstr("deadline")));
  locations = symbolizer.Symbolize(Queries(OpenModule(Sample()), {SvmaOf(Sample(), "plain_c")}), In(30));
  EXPECT_GT(locations[0]->frames.at(0).line, 0);
}

// A generator with a fixed start: the same mutations on every run.
TEST(Symbolizer, AnswersForTwoHundredDamagedFiles) {
  const std::string whole = ReadFile(Sample());
  std::vector<uint64_t> svmas = TextAddresses(Sample(), 200);
  size_t debug_begin = strtoull(
      RunCommand("readelf -SW sample | sed -n 's/.* \\.debug_aranges *[A-Z]* *[0-9a-f]* \\([0-9a-f]*\\) .*/\\1/p'").c_str(),
      nullptr, 16);
  ASSERT_GT(debug_begin, 0u);
  std::minstd_rand random(20240229);
  Symbolizer symbolizer(NoDebugFiles());
  int opened = 0, with_lines = 0;
  for (int i = 0; i < 200; ++i) {
    std::string bytes = whole;
    // Most in the debug data and tables behind it; some anywhere; some cut.
    for (int k = 0; k < 1 + i % 30; ++k) {
      size_t at = i % 4 == 0 ? random() % bytes.size() : debug_begin + random() % (bytes.size() - debug_begin);
      bytes[at] = random() % 3 == 0 ? '\xff' : static_cast<char>(random());
    }
    if (i % 10 == 9) bytes.resize(debug_begin + random() % (bytes.size() - debug_begin));
    std::string path = WriteFile("damaged", bytes);
    auto module = Module::Open(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), path);
    RunCommand("rm damaged");
    if (!module) continue;
    opened++;
    auto locations = symbolizer.Symbolize(Queries(*module, svmas), In(30));
    for (const auto& location : locations) {
      ASSERT_THAT(location->unnamed_reason, testing::Not(HasSubstr("deadline"))) << "mutation " << i;
      with_lines += !location->frames.empty() && location->frames.front().line > 0;
    }
  }
  EXPECT_GT(opened, 150);
  EXPECT_GT(with_lines, 1000);
}

TEST(Symbolizer, ForgetsWhatWasNotUsedLatelyWhenItsCacheIsFull) {
  SymbolizerOptions options = NoDebugFiles();
  options.cache_limit_bytes = 64 << 10;
  Symbolizer symbolizer(options);
  auto module = OpenModule(Sample());
  std::vector<uint64_t> svmas = TextAddresses(Sample(), 4);
  for (int round = 0; round < 3; ++round) {
    auto locations = symbolizer.Symbolize(Queries(module, svmas), In(30));
    for (const auto& location : locations) EXPECT_NE(location->unnamed_reason, "not named within the deadline");
  }
}

TEST(Symbolizer, ServesManyThreadsAtOnce) {
  Symbolizer symbolizer(NoDebugFiles());
  auto module = OpenModule(Sample());
  std::vector<uint64_t> svmas = TextAddresses(Sample(), 8);
  auto expected = Symbolizer(NoDebugFiles()).Symbolize(Queries(module, svmas), In(30));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      auto locations = symbolizer.Symbolize(Queries(module, svmas), In(30));
      for (size_t i = 0; i < svmas.size(); ++i) {
        ASSERT_EQ(locations[i]->frames.size(), expected[i]->frames.size());
        for (size_t k = 0; k < locations[i]->frames.size(); ++k) {
          EXPECT_EQ(locations[i]->frames[k].function, expected[i]->frames[k].function);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Symbolizer, EndsAtOnceWithWorkUnderWay) {
  auto module = OpenModule(Sample());
  std::vector<pid_t> workers;
  {
    Symbolizer symbolizer(NoDebugFiles());
    symbolizer.Symbolize(Queries(module, {SvmaOf(Sample(), "main")}), In(30));
    workers = BothWorkers();
    for (pid_t worker : workers) kill(worker, SIGSTOP);
    symbolizer.Symbolize(Queries(module, TextAddresses(Sample())), MonotonicNs());
  }
  ASSERT_EQ(workers.size(), 2u);
  for (pid_t worker : workers) EXPECT_EQ(kill(worker, 0), -1) << "reaped";
}

// Returns when this process has no child: a worker ends, or is ended and waited for.
void AwaitNoWorkers() {
  siginfo_t info;
  while (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0) {
  }
}

TEST(Symbolizer, EndsItsWorkersWhenThereIsNothingToDoAndStartsThemForTheNextAddress) {
  Symbolizer symbolizer({.worker_idle_limit_ns = kNsPerMs});
  auto module = OpenModule(Sample());
  uint64_t svma = SvmaOf(Sample(), "plain_c");
  auto before = symbolizer.Symbolize(Queries(module, {svma}), In(30));
  AwaitNoWorkers();
  auto cached = symbolizer.Symbolize(Queries(module, {svma}), In(30));
  EXPECT_EQ(cached[0], before[0]);
  auto after = symbolizer.Symbolize(Queries(module, {SvmaOf(Sample(), "main")}), In(30));
  ASSERT_FALSE(after[0]->frames.empty());
  EXPECT_EQ(after[0]->frames.back().function, "main");
  EXPECT_GT(after[0]->frames.back().line, 0);
  EXPECT_EQ(symbolizer.worker_restarts(), 0);
}

TEST(Symbolizer, LosesNoAddressWhileItsWorkersEndAllTheTime) {
  Symbolizer symbolizer({.worker_idle_limit_ns = 0});
  auto module = OpenModule(Sample());
  uint64_t svma = SvmaOf(Sample(), "plain_c");
  for (uint64_t offset = 0; offset < 10; ++offset) {
    auto locations = symbolizer.Symbolize(Queries(module, {svma + offset}), In(30));
    ASSERT_FALSE(locations[0]->frames.empty()) << offset << ": " << locations[0]->unnamed_reason;
    EXPECT_GT(locations[0]->frames.back().line, 0) << offset;
  }
  EXPECT_EQ(symbolizer.worker_restarts(), 0);
}

}  // namespace
}  // namespace stackd
