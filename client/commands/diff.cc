#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {

int RunDiff(Api& api, const Options& options) {
  v1::CompareDumpsRequest request;
  request.set_before(options.name);
  request.set_after(options.second_name);
  auto comparison = api.CompareDumps(request);
  if (!comparison) return Failed(comparison.error());
  return (options.json ? Print(Json(*comparison)) : PrintLines(comparison->lines())) ? kOk : kFailure;
}

}  // namespace stackd
