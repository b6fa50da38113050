#include "daemon/pipeline/outside_dump.h"

#include <string>
#include <utility>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/pipeline/code_names.h"
#include "daemon/pipeline/dump_id.h"
#include "daemon/pipeline/naming_time.h"

namespace stackd {

Result<std::unique_ptr<OutsideDump>> OutsideDump::Open(int32_t pid) {
  auto capture = OutsideCapture::Open("/proc", pid);
  if (!capture) return std::unexpected(capture.error());
  return std::unique_ptr<OutsideDump>(new OutsideDump(std::move(*capture)));
}

Result<std::shared_ptr<const v1::Dump>> OutsideDump::Take(const OutsideRequest& request) {
  OutsideRequest first = request;
  first.deadline_ns -= NamingTimeNs(request.deadline_ns - MonotonicNs());
  auto capture = capture_->Read(first);
  if (!capture) return std::unexpected(capture.error());
  managed_.Read(first.deadline_ns, *capture);
  const auto look = [&](const std::vector<ThreadWait>& sleeping, int64_t deadline_ns) {
    return managed_.ReadWaits(*capture, sleeping, deadline_ns);
  };
  capture_->ConfirmWaits(look, first.deadline_ns, capture->get());
  CodeNames code_names([this] {
    perf_map_->Update(capture_->OpenPerfMap());
    return perf_map_;
  });
  DumpIds ids;
  StageTimes times;
  std::shared_ptr<v1::Dump> dump = stages_
                                       .Run(**capture, request.deadline_ns, ids.Next((*capture)->begin_wall_ns), &times,
                                            /*earlier=*/nullptr, [&](uint64_t avma) { return code_names.NameOf(avma); })
                                       .dump;
  code_names.AddProblemTo(dump.get());
  dump->set_stored(false);
  return dump;
}

}  // namespace stackd
