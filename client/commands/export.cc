#include "client/commands/commands.h"
#include "client/commands/output_file.h"
#include "client/exit_code.h"

namespace stackd {

int RunExport(Api& api, const Options& options) {
  if (!MayPrint(options)) return kUsage;
  if (options.to == "-") return RunShow(api, options);
  return WriteFile(options.to, [&](const Sink& sink) {
    const Result<void> exported = ExportDump(api, ExportRequest(options.name, options), sink);
    return exported ? kOk : Failed(exported.error());
  });
}

}  // namespace stackd
