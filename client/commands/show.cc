#include "client/commands/commands.h"
#include "client/exit_code.h"

namespace stackd {

int RunShow(Api& api, const Options& options) {
  Result<void> printed = PrintDump(api, ExportRequest(options.name, options));
  return printed ? kOk : Failed(printed.error());
}

}  // namespace stackd
