#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {

int RunList(Api& api, const Options& options) {
  v1::ListDumpsRequest request;
  request.set_parent(options.name);
  request.set_filter(options.filter);
  v1::ListDumpsResponse all;
  do {
    auto page = api.ListDumps(request);
    if (!page) return Failed(page.error());
    for (v1::Dump& dump : *page->mutable_dumps()) *all.add_dumps() = std::move(dump);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());

  if (options.json) return Print(Json(all)) ? kOk : kFailure;
  std::vector<std::vector<std::string>> rows{{"CREATED", "PROCESS", "TRIGGER", "STATE", "THREADS", "NAME"}};
  for (const v1::Dump& dump : all.dumps()) {
    rows.push_back({TimeText(dump.create_time()), dump.process().display_name(), TriggerText(dump), StateText(dump),
                    ThreadsText(dump.thread_counts()), dump.name()});
  }
  if (all.dumps().empty()) Complain("no dump is stored");
  return Print(Table(rows)) ? kOk : kFailure;
}

}  // namespace stackd
