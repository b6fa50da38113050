// Looks at one process again and again as the detector does, without signals.
//
//   look_loop AGENT ROUNDS PROGRAM [ARGUMENT...]
//
// Prints "SCHEDSTAT_CPU_NS SAMPLE_NS SAMPLE_CPU_NS HELPER_CPU_NS": medians of the CPU time of a ReadSchedStats, of the time
// of a SampleWaits and of its CPU time here. The last is the CPU time that the process's helper uses for one.
#include <time.h>
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

// CPU time of the agent's own thread in that process.
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

int64_t CpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

long long Median(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

size_t CountAwake(Collector* collector, const std::string& process_id) {
  auto sched_stat = collector->ReadSchedStats(process_id);
  if (!sched_stat) Fail("ReadSchedStats: " + sched_stat.error().message);
  auto waits = collector->SampleWaits(process_id, MonotonicNs() + 10 * kNsPerSecond);
  if (!waits) Fail("SampleWaits: " + waits.error().message);
  // The agent's own thread looks.
  return sched_stat->size() - std::min(sched_stat->size(), waits->size() + 1);
}

void AwaitAllAsleep(Collector* collector, const std::string& process_id) {
  int64_t give_up_ns = MonotonicNs() + 30 * kNsPerSecond;
  while (CountAwake(collector, process_id) != 0) {
    if (MonotonicNs() > give_up_ns) Fail("not all threads sleep");
    usleep(20'000);
  }
}

int Run(const std::string& agent, int rounds, const std::vector<std::string>& command) {
  TemporaryDir dir;
  auto collector = Collector::Start({.dir = dir.path()});
  if (!collector) Fail(collector.error().message);
  UnderAgent program(collector->get(), dir.path(), agent, command);
  std::vector<int64_t> schedstat_cpu_ns, sample_ns, sample_cpu_ns;
  AwaitAllAsleep(collector->get(), program.process_id());
  int64_t helper_before_ns = HelperCpuNs(program.pid());
  for (int i = 0; i < rounds; ++i) {
    int64_t schedstat_begin_cpu_ns = CpuNs();
    auto sched_stat = (*collector)->ReadSchedStats(program.process_id());
    int64_t sample_begin_cpu_ns = CpuNs();
    int64_t sample_begin_ns = MonotonicNs();
    auto waits = (*collector)->SampleWaits(program.process_id(), sample_begin_ns + 10 * kNsPerSecond);
    sample_ns.push_back(MonotonicNs() - sample_begin_ns);
    sample_cpu_ns.push_back(CpuNs() - sample_begin_cpu_ns);
    schedstat_cpu_ns.push_back(sample_begin_cpu_ns - schedstat_begin_cpu_ns);
    if (!sched_stat || !waits || waits->size() + 1 < sched_stat->size()) Fail("not all threads were seen");
    // As far apart as in use, where all threads sleep in between.
    usleep(20'000);
  }
  int64_t helper_cpu_ns = (HelperCpuNs(program.pid()) - helper_before_ns) / rounds;
  printf("%lld %lld %lld %lld\n", Median(schedstat_cpu_ns), Median(sample_ns), Median(sample_cpu_ns),
         static_cast<long long>(helper_cpu_ns));
  return 0;
}

}  // namespace
}  // namespace stackd::bench

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  return stackd::bench::Run(argv[1], atoi(argv[2]), {argv + 3, argv + argc});
}
