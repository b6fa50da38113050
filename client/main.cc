// stackctl: parses, calls one command, ends with its exit code.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/lock_graph.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {
namespace {

using Command = int (*)(Api&, const Options&);

Command Find(const std::string& name) {
  static const std::map<std::string, Command> commands{{"ps", RunPs},
                                                       {"top", RunTop},
                                                       {"explain", RunExplain},
                                                       {"dump", RunDump},
                                                       {"list", RunList},
                                                       {"show", RunShow},
                                                       {"diff", RunDiff},
                                                       {"groups", RunGroups},
                                                       {"watch", RunWatch},
                                                       {"record", RunRecord},
                                                       {"export", RunExport},
                                                       {"delete", RunDelete},
                                                       {"doctor", RunDoctor},
                                                       {"version", RunVersion},
                                                       {"resymbolize", RunResymbolize},
                                                       {"completion", RunCompletion}};
  return commands.at(name);
}

}  // namespace
}  // namespace stackd

int main(int argc, char** argv) {
  using namespace stackd;
  // dump --pid names functions in a process of its own.
  const int worker_exit_code = RunSymbolizeWorkerIfAsked(argc, argv);
  if (worker_exit_code >= 0) return worker_exit_code;
  auto options = ParseOptions(argc, argv);
  if (!options) {
    fputs(options.error().text.c_str(), options.error().exit_code == 0 ? stdout : stderr);
    return options.error().exit_code;
  }
  TurnOffLockGraph();
  Api api(
      {.address = options->address, .tls_ca = options->tls_ca, .tls_cert = options->tls_cert, .tls_key = options->tls_key},
      options->timeout_ms);
  int exit_code = Find(options->command)(api, *options);
  if (!FlushOutput() && exit_code == kOk) exit_code = kFailure;
  // Taking gRPC down in order costs more than most commands.
  _exit(exit_code);
}
