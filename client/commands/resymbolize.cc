#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {

int RunResymbolize(Api& api, const Options& options) {
  v1::ResymbolizeDumpRequest request;
  request.set_name(options.name);
  request.set_view(v1::DUMP_VIEW_BASIC);
  auto dump = api.ResymbolizeDump(request);
  if (!dump) return Failed(dump.error());
  if (options.json) return Print(Json(*dump)) ? kOk : kFailure;
  // What could not be found stands in the last of them.
  if (!dump->notes().empty()) Complain(dump->notes(dump->notes_size() - 1));
  return Print(dump->name() + "\n") ? kOk : kFailure;
}

}  // namespace stackd
