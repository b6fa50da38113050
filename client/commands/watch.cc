#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

std::string Line(const v1::Dump& dump) {
  const std::string cause = CauseText(dump);
  return TimeText(dump.create_time()) + "  " + PrintableText(dump.process().display_name()) + "  " + TriggerText(dump) +
         "  " + StateText(dump) + "  " + ThreadsText(dump.thread_counts()) + " threads  " + dump.name() +
         (cause.empty() ? "" : "  " + PrintableText(cause)) + "\n";
}

}  // namespace

int RunWatch(Api& api, const Options& options) {
  v1::WatchDumpsRequest request;
  if (!options.name.empty()) {
    v1::GetProcessRequest get;
    get.set_name(options.name);
    auto process = api.GetProcess(get);
    if (!process) return Failed(process.error());
    request.set_parent(process->name());
  }
  while (true) {
    bool written = true;
    Result<void> watched = api.WatchDumps(request, [&](const v1::Dump& dump) {
      request.set_after(dump.name());
      written = Print(options.json ? Json(dump, false) : Line(dump)) && FlushOutput();
      return written;
    });
    if (!written) return kFailure;
    if (watched) return kOk;
    // The stream says so when it ran ahead of us; from the last dump on it is complete.
    if (watched.error().reason != "WATCH_TOO_SLOW") return Failed(watched.error());
  }
}

}  // namespace stackd
