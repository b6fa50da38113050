#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/clock.h"

namespace stackd {
namespace {

std::vector<std::string> Head(const Options& options) {
  if (options.crashes) return {"CREATED", "PROCESS", "STATE", "THREADS", "CRASH", "NAME"};
  if (options.hangs) return {"CREATED", "PROCESS", "STATE", "THREADS", "HANG", "NAME"};
  return {"CREATED", "PROCESS", "TRIGGER", "STATE", "THREADS", "NAME"};
}

std::vector<std::string> Row(const v1::Dump& dump, const Options& options) {
  const std::string created = TimeText(dump.create_time()), threads = ThreadsText(dump.thread_counts());
  const std::string& process = dump.process().display_name();
  if (options.crashes || options.hangs) {
    return {created, process, StateText(dump), threads, CauseText(dump), dump.name()};
  }
  return {created, process, TriggerText(dump), StateText(dump), threads, dump.name()};
}

// Older than --since says. Newer ones come first.
bool IsBefore(const v1::Dump& dump, const Options& options) {
  if (options.since_ms == 0) return false;
  const int64_t created_ns = dump.create_time().seconds() * kNsPerSecond + dump.create_time().nanos();
  return created_ns < WallNs() - options.since_ms * kNsPerMs;
}

const char* NoneInWords(const Options& options) {
  if (options.crashes) return "no crash is stored";
  return options.hangs ? "no hang is stored" : "no dump is stored";
}

}  // namespace

int RunList(Api& api, const Options& options) {
  v1::ListDumpsRequest request;
  request.set_parent(options.name);
  request.set_filter(options.filter);
  if (options.crashes) request.set_trigger(v1::Dump::CRASH);
  if (options.hangs) request.set_trigger(v1::Dump::HANG);
  v1::ListDumpsResponse all;
  bool is_enough = false;
  do {
    auto page = api.ListDumps(request);
    if (!page) return Failed(page.error());
    for (v1::Dump& dump : *page->mutable_dumps()) {
      is_enough = IsBefore(dump, options) || (options.limit > 0 && all.dumps_size() == options.limit);
      if (is_enough) break;
      *all.add_dumps() = std::move(dump);
    }
    request.set_page_token(page->next_page_token());
  } while (!is_enough && !request.page_token().empty());

  if (options.json) return Print(Json(all)) ? kOk : kFailure;
  std::vector<std::vector<std::string>> rows{Head(options)};
  for (const v1::Dump& dump : all.dumps()) rows.push_back(Row(dump, options));
  if (all.dumps().empty()) Complain(NoneInWords(options));
  return Print(Table(rows)) ? kOk : kFailure;
}

}  // namespace stackd
