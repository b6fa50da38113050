#include "daemon/process/schedstat_reader.h"

#include <algorithm>
#include <optional>

namespace stackd {
namespace {

// Beyond, a look would take as long as the looks at all others may.
constexpr size_t kMaxThreads = 16'384;

}  // namespace

Result<std::vector<ThreadSchedStat>> ListSchedStats(const ProcessFiles& files) {
  const std::vector<int32_t> tids = files.Tids();
  if (tids.empty()) return Error(Code::kUnavailable, "its threads cannot be listed: it has ended");
  if (tids.size() > kMaxThreads) return Error(Code::kUnavailable, "it has more threads than can be looked at");
  std::vector<ThreadSchedStat> sched_stats;
  sched_stats.reserve(tids.size());
  for (const int32_t tid : tids) {
    // Without one it has ended meanwhile.
    if (const auto sched_stat = files.SchedStatOf(tid)) sched_stats.push_back(*sched_stat);
  }
  // The kernel lists them as they began, and tids wrap around.
  std::ranges::sort(sched_stats, {}, &ThreadSchedStat::tid);
  // Every thread has run once, or it could not be here.
  const bool told =
      std::ranges::any_of(sched_stats, [](const ThreadSchedStat& sched_stat) { return sched_stat.run_count != 0; });
  if (!told) return Error(Code::kUnavailable, "the kernel does not tell how long threads run");
  return sched_stats;
}

}  // namespace stackd
