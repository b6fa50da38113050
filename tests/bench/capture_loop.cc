// Captures one process again and again: collector and ring alone, nothing behind them.
//
//   capture_loop AGENT SECONDS PAUSE_US PROGRAM [ARGUMENT...]
//
// Prints "STACKS_PER_SECOND STACKS_PER_CAPTURE MIN_NS MEDIAN_NS P99_NS", the times being those of a capture. PAUSE_US lies
// between two captures.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/collect/collector.h"
#include "daemon/log/log.h"
#include "tests/bench/under_agent.h"

namespace stackd::bench {
namespace {

int Run(const std::string& agent, double seconds, useconds_t pause_us, const std::vector<std::string>& command) {
  TemporaryDir dir;
  auto collector = Collector::Start({.dir = dir.path()});
  if (!collector) {
    fprintf(stderr, "%s\n", collector.error().message.c_str());
    return 1;
  }
  UnderAgent program(collector->get(), dir.path(), agent, command);
  std::vector<int64_t> took_ns;
  int64_t stacks = 0;
  int64_t in_captures_ns = 0;
  // The first captures read maps and learn which threads answer.
  for (int i = -3; in_captures_ns < static_cast<int64_t>(seconds * kNsPerSecond); ++i) {
    if (pause_us != 0) usleep(pause_us);
    int64_t begin_ns = MonotonicNs();
    auto capture = (*collector)->CaptureProcess(program.process_id(), {.deadline_ns = begin_ns + 10 * kNsPerSecond});
    int64_t now_ns = MonotonicNs();
    if (!capture || (*capture)->partial) {
      fprintf(stderr, "a capture failed: %s\n", capture ? "partial" : capture.error().message.c_str());
      return 1;
    }
    if (i < 0) continue;
    took_ns.push_back(now_ns - begin_ns);
    in_captures_ns += now_ns - begin_ns;
    stacks += std::ranges::count((*capture)->threads, true,
                                 [](const ThreadCapture& thread) { return thread.status == ThreadStatus::kCaptured; });
  }
  std::ranges::sort(took_ns);
  double captures = static_cast<double>(took_ns.size());
  printf("%.0f %.1f %lld %lld %lld\n", static_cast<double>(stacks) * 1e9 / static_cast<double>(in_captures_ns),
         static_cast<double>(stacks) / captures, static_cast<long long>(took_ns.front()),
         static_cast<long long>(took_ns[took_ns.size() / 2]), static_cast<long long>(took_ns[took_ns.size() * 99 / 100]));
  return 0;
}

}  // namespace
}  // namespace stackd::bench

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  stackd::StartLog(stackd::LogFormat::kText, stackd::LogLevel::kError);
  return stackd::bench::Run(argv[1], atof(argv[2]), static_cast<useconds_t>(atol(argv[3])), {argv + 4, argv + argc});
}
