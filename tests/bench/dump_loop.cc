// Dumps one process again and again through every stage: captured, unwound, named, grouped, stored in memory.
//
//   dump_loop AGENT SECONDS PROGRAM [ARGUMENT...]
//
// Prints "STACKS_PER_SECOND STACKS_PER_DUMP MIN_NS MEDIAN_NS P99_NS PARTIAL": times of a dump, and how many were partial.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/collect/collector.h"
#include "daemon/log/log.h"
#include "daemon/pipeline/pipeline.h"
#include "daemon/store/dump_store.h"
#include "daemon/symbolize/symbolizer.h"
#include "tests/bench/under_agent.h"

namespace stackd::bench {
namespace {

int Fail(const std::string& sentence) {
  fprintf(stderr, "%s\n", sentence.c_str());
  return 1;
}

int Run(const std::string& agent, double seconds, const std::vector<std::string>& command) {
  TemporaryDir dir;
  auto collector = Collector::Start({.dir = dir.path()});
  if (!collector) return Fail(collector.error().message);
  auto store = DumpStore::Open({.file = ":memory:"});
  if (!store) return Fail(store.error().message);
  Symbolizer symbolizer({});
  Pipeline pipeline(collector->get(), &symbolizer, store->get());
  UnderAgent program(collector->get(), dir.path(), agent, command);
  std::vector<int64_t> took_ns;
  int64_t stacks = 0;
  int64_t in_dumps_ns = 0;
  int64_t partial = 0;
  // The first dumps read maps, unwind tables and symbols.
  for (int i = -3; in_dumps_ns < static_cast<int64_t>(seconds * kNsPerSecond); ++i) {
    int64_t begin_ns = MonotonicNs();
    auto dump = pipeline.CreateDump(program.process_id(), {.deadline_ns = begin_ns + 10 * kNsPerSecond});
    int64_t now_ns = MonotonicNs();
    if (!dump) return Fail("a dump failed: " + dump.error().message);
    if (i < 0) continue;
    if ((*dump)->state() != v1::Dump::COMPLETE) {
      if (partial++ == 0) fprintf(stderr, "a dump is partial: %s\n", (*dump)->thread_counts().ShortDebugString().c_str());
    }
    took_ns.push_back(now_ns - begin_ns);
    in_dumps_ns += now_ns - begin_ns;
    stacks += (*dump)->thread_counts().captured();
  }
  if (pipeline.Counters()["stacks_incomplete"] != 0) fprintf(stderr, "some stacks are incomplete\n");
  std::ranges::sort(took_ns);
  double dumps = static_cast<double>(took_ns.size());
  printf("%.0f %.1f %lld %lld %lld %lld\n", static_cast<double>(stacks) * 1e9 / static_cast<double>(in_dumps_ns),
         static_cast<double>(stacks) / dumps, static_cast<long long>(took_ns.front()),
         static_cast<long long>(took_ns[took_ns.size() / 2]), static_cast<long long>(took_ns[took_ns.size() * 99 / 100]),
         static_cast<long long>(partial));
  return 0;
}

}  // namespace
}  // namespace stackd::bench

int main(int argc, char** argv) {
  int worker_exit_code = stackd::RunSymbolizeWorkerIfAsked(argc, argv);
  if (worker_exit_code >= 0) return worker_exit_code;
  if (argc < 4) return 2;
  stackd::StartLog(stackd::LogFormat::kText, stackd::LogLevel::kError);
  return stackd::bench::Run(argv[1], atof(argv[2]), {argv + 3, argv + argc});
}
