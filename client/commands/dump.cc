#include "client/commands/commands.h"
#include "client/commands/process_checks.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {
namespace {

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
  if (!options.core.empty()) return RunCoreDump(options);
  if (options.tree) return RunDumpTree(api, options);
  if (options.pid == 0) return DumpNamed(api, options);
  // With an agent it can say more than its memory does. Without a daemon there is nothing to ask.
  const auto processes = options.no_daemon ? Result<std::vector<v1::Process>>() : AllProcesses(api);
  const v1::Process* known = processes ? FindConnected("/proc", options.pid, *processes) : nullptr;
  if (known == nullptr) return RunOutsideDump(options);
  Options named = options;
  named.name = known->name();
  return DumpNamed(api, named);
}

}  // namespace stackd
