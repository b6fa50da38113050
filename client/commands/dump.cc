#include <unistd.h>

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/stand_in.h"
#include "client/unregistered_process.h"
#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int64_t kListedNs = 2 * kNsPerSecond;
constexpr useconds_t kLookAgainUs = 10'000;

// A daemon welcomes a process a moment before it lists it.
Result<void> AwaitListed(Api& api, const v1::GetProcessRequest& request, const std::string& dir) {
  const int64_t deadline_ns = MonotonicNs() + kListedNs;
  while (true) {
    auto listed = api.GetProcess(request);
    if (listed) return {};
    if (listed.error().code != Code::kNotFound) return std::unexpected(listed.error());
    if (MonotonicNs() >= deadline_ns) {
      return Error(Code::kFailedPrecondition, "the daemon at " + api.address() +
                                                  " is not the one whose agents register in " + dir +
                                                  ": say with STACKD_DIR where its own do");
    }
    usleep(kLookAgainUs);
  }
}

int DumpNamed(Api& api, const Options& options) {
  if (options.samples > 1) return RunSamples(api, options);
  const bool is_text = FormatOf(options) == v1::ExportDumpRequest::TEXT;
  v1::CreateDumpRequest request;
  request.set_process(options.name);
  // The text comes with the answer, unless it is too long for one.
  request.set_frames(FramesOf(options));
  request.set_quiet(QuietOf(options));
  request.set_view(is_text ? v1::DUMP_VIEW_TEXT : v1::DUMP_VIEW_BASIC);
  auto dump = api.CreateDump(request);
  if (!dump) return Failed(dump.error());
  if (is_text && dump->omitted_group_count() == 0) {
    if (!PrintLines(dump->lines())) return kFailure;
  } else {
    Result<void> printed = PrintDump(api, ExportRequest(dump->name(), options));
    if (!printed) return Failed(printed.error());
  }
  return PartialOrOk(*dump);
}

}  // namespace

int RunDump(Api& api, const Options& options) {
  if (options.pid == 0) return DumpNamed(api, options);
  auto process = UnregisteredProcess::Open("/proc", options.pid);
  if (!process) return Failed(process.error());
  Options named = options;
  named.name = process->name();
  v1::GetProcessRequest request;
  request.set_name(named.name);
  // With an agent it can say more than its memory does.
  if (api.GetProcess(request)) return DumpNamed(api, named);
  const std::string dir = DirOf(options.address);
  auto stand_in = StandIn::Register(std::move(*process), dir);
  if (!stand_in) return Failed(stand_in.error());
  if (auto listed = AwaitListed(api, request, dir); !listed) return Failed(listed.error());
  return DumpNamed(api, named);
}

}  // namespace stackd
