#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {

int RunPs(Api& api, const Options& options) {
  v1::ListProcessesRequest request;
  request.set_filter(options.filter);
  v1::ListProcessesResponse all;
  do {
    auto page = api.ListProcesses(request);
    if (!page) return Failed(page.error());
    for (v1::Process& process : *page->mutable_processes()) *all.add_processes() = std::move(process);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());

  if (options.json) return Print(Json(all)) ? kOk : kFailure;
  std::vector<std::vector<std::string>> rows{{"PID", "NAME", "THREADS", "UID", "SHARES", "HOST", "STARTED", "PROCESS"}};
  for (const v1::Process& process : all.processes()) {
    rows.push_back({std::to_string(process.pid()), process.display_name(), std::to_string(process.thread_count()),
                    std::to_string(process.uid()), ShareText(process), process.hostname(), TimeText(process.start_time()),
                    process.name()});
  }
  if (all.processes().empty()) {
    Complain("no process is connected: start one with LD_PRELOAD=/path/to/libstackd_agent.so, or ask stackctl doctor PID");
  }
  return Print(Table(rows)) ? kOk : kFailure;
}

}  // namespace stackd
