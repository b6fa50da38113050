#include "client/commands/commands.h"
#include "client/exit_code.h"

namespace stackd {

int RunDelete(Api& api, const Options& options) {
  v1::DeleteDumpRequest request;
  request.set_name(options.name);
  Result<void> deleted = api.DeleteDump(request);
  return deleted ? kOk : Failed(deleted.error());
}

}  // namespace stackd
