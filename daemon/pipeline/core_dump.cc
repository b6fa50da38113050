#include "daemon/pipeline/core_dump.h"

#include <utility>

#include "daemon/base/clock.h"
#include "daemon/core/core_capture.h"
#include "daemon/managed/managed_reader.h"
#include "daemon/pipeline/dump_id.h"
#include "daemon/pipeline/dump_stages.h"
#include "daemon/pipeline/naming_time.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {

Result<std::shared_ptr<const v1::Dump>> DumpCore(const std::string& core, const std::string& executable,
                                                 int64_t deadline_ns) {
  auto opened = CoreCapture::Open(core, executable);
  if (!opened) return std::unexpected(opened.error());
  // What reads its memory may be late, and is not waited for.
  CoreCapture* const reader = opened->release();
  const int64_t read_by_ns = deadline_ns - NamingTimeNs(deadline_ns - MonotonicNs());
  auto capture = reader->Read(read_by_ns);
  if (!capture) return std::unexpected(capture.error());
  ManagedReader().Read(read_by_ns, *capture);
  Symbolizer symbolizer({});
  PipelineMeasures measures;
  DumpStages stages(&symbolizer, /*dumps=*/nullptr, &measures);
  DumpIds ids;
  StageTimes times;
  std::shared_ptr<v1::Dump> dump = stages.Run(**capture, deadline_ns, ids.Next((*capture)->begin_wall_ns), &times).dump;
  dump->set_stored(false);
  // Nothing was held up.
  dump->clear_pause();
  return dump;
}

}  // namespace stackd
