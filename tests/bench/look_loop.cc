// Looks at one process again and again as the detector does, without signals.
//
//   look_loop AGENT ROUNDS PROGRAM [ARGUMENT...]
//
// Prints "MOTION_NS SAMPLE_NS SAMPLE_P99_NS HELPER_NS": the median time of ReadMotion; median and 99th percentile of
// SampleWaits; CPU time that the process's helper uses for one.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/collect/collector.h"
#include "tests/bench/under_agent.h"

namespace stackd::bench {
namespace {

[[noreturn]] void Fail(const std::string& sentence) {
  fprintf(stderr, "%s\n", sentence.c_str());
  exit(1);
}

// Of the agent's own thread in that process.
int64_t HelperCpuNs(pid_t pid) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "stackd-agent") continue;
    int64_t run_ns = 0;
    std::ifstream(task.path() / "schedstat") >> run_ns;
    return run_ns;
  }
  Fail("the process has no thread stackd-agent");
}

int64_t Percentile(std::vector<int64_t> values, int percent) {
  std::ranges::sort(values);
  return values[values.size() * static_cast<size_t>(percent) / 100];
}

int Run(const std::string& agent, int rounds, const std::vector<std::string>& command) {
  TemporaryDir dir;
  auto collector = Collector::Start({.dir = dir.path()});
  if (!collector) Fail(collector.error().message);
  UnderAgent program(collector->get(), dir.path(), agent, command);
  std::vector<int64_t> motion_ns, sample_ns;
  int64_t helper_before_ns = HelperCpuNs(program.pid());
  for (int i = 0; i < rounds; ++i) {
    int64_t begin_ns = MonotonicNs();
    auto motion = (*collector)->ReadMotion(program.process_id());
    int64_t then_ns = MonotonicNs();
    auto waits = (*collector)->SampleWaits(program.process_id(), then_ns + 10 * kNsPerSecond);
    sample_ns.push_back(MonotonicNs() - then_ns);
    motion_ns.push_back(then_ns - begin_ns);
    if (!motion) Fail("ReadMotion: " + motion.error().message);
    if (!waits) Fail("SampleWaits: " + waits.error().message);
    // All but the agent's own thread, which looks.
    if (waits->size() + 1 < motion->size()) {
      Fail("SampleWaits gave " + std::to_string(waits->size()) + " of " + std::to_string(motion->size()) + " threads");
    }
    // As far apart as in use, where everybody sleeps in between.
    usleep(20'000);
  }
  int64_t helper_ns = (HelperCpuNs(program.pid()) - helper_before_ns) / rounds;
  printf("%lld %lld %lld %lld\n", static_cast<long long>(Percentile(motion_ns, 50)),
         static_cast<long long>(Percentile(sample_ns, 50)), static_cast<long long>(Percentile(sample_ns, 99)),
         static_cast<long long>(helper_ns));
  return 0;
}

}  // namespace
}  // namespace stackd::bench

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  return stackd::bench::Run(argv[1], atoi(argv[2]), {argv + 3, argv + argc});
}
