#include "daemon/config/version.h"

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

std::string Line(const std::string& program, const std::string& version, uint32_t abi_version, const std::string& where) {
  return program + " " + version + " (agent ABI " + std::to_string(abi_version) + ")" + where + "\n";
}

}  // namespace

int RunVersion(Api& api, const Options& options) {
  auto daemon = api.GetDaemon();
  if (options.json) {
    if (!daemon) return Failed(daemon.error());
    return Print(Json(*daemon)) ? kOk : kFailure;
  }
  if (!Print(Line("stackctl", kVersion, STACKD_ABI_VERSION, ""))) return kFailure;
  if (!daemon) return Failed(daemon.error());
  return Print(Line("stackd", daemon->version(), daemon->abi_version(), " at " + api.address())) ? kOk : kFailure;
}

}  // namespace stackd
