#include "daemon/symbolize/symbolizer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
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
    RunCommand("g++ -std=c++17 -O2 -g sample.cc -o sample 2>&1");
    return TestFolder() + "/sample";
  }();
  return path;
}

uint64_t SvmaOf(const std::string& file, const std::string& symbol) {
  return strtoull(RunCommand("nm '" + file + "' | sed -n 's/ [tTwW] " + symbol + "$//p'").c_str(), nullptr, 16);
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
