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
  // What could not be found is among them.
  for (const std::string& note : dump->notes()) Complain(note);
  return Print(dump->name() + "\n") ? kOk : kFailure;
}

}  // namespace stackd
