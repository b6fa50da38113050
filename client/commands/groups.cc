#include <algorithm>
#include <tuple>

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

// "checkout (12), cart (3) and 4 more"
std::string ProcessesText(const v1::CrashGroup& group) {
  std::string text;
  for (const v1::CrashGroup::ProcessCount& process : group.processes()) {
    if (!text.empty()) text += ", ";
    text += process.display_name();
    if (process.crash_count() < group.crash_count()) text += " (" + std::to_string(process.crash_count()) + ")";
  }
  if (group.other_process_crash_count() > 0) {
    text += " and " + std::to_string(group.other_process_crash_count()) + " more";
  }
  return text;
}

bool LastSeenFirst(const v1::CrashGroup& a, const v1::CrashGroup& b) {
  const auto last = [](const v1::CrashGroup& group) {
    return std::tuple(group.last_seen_time().seconds(), group.last_seen_time().nanos());
  };
  return last(a) > last(b);
}

std::string GroupTable(const v1::ListStackGroupsResponse& all, const char* kind) {
  std::vector<std::vector<std::string>> rows{{"COUNT", "FIRST", "LAST", "FINGERPRINT", "PROCESSES", "FUNCTION", kind}};
  for (const v1::CrashGroup& group : all.stack_groups()) {
    rows.push_back({std::to_string(group.crash_count()), TimeText(group.first_seen_time()),
                    TimeText(group.last_seen_time()), group.fingerprint(), ProcessesText(group), group.top_function(),
                    group.explanation()});
  }
  return Table(rows);
}

std::string Explained(const v1::CrashGroup& group) {
  const bool is_hang = group.kind() == v1::CrashGroup::HANG;
  std::string text = PrintableText(group.explanation()) + "\n" + std::to_string(group.crash_count()) +
                     (group.crash_count() == 1 ? (is_hang ? " hang" : " crash") : (is_hang ? " hangs" : " crashes")) +
                     " of " + PrintableText(ProcessesText(group)) + ", first " + TimeText(group.first_seen_time()) +
                     ", last " + TimeText(group.last_seen_time()) + "\nfingerprint " + group.fingerprint() + " by rule " +
                     PrintableText(group.fingerprint_rule()) + "\n\n";
  std::vector<std::vector<std::string>> rows{{"FRAME", "FUNCTION", "MODULE", "RULE"}};
  for (const v1::FingerprintFrame& frame : group.fingerprint_frames()) {
    rows.push_back({frame.used() ? "used" : "skipped", frame.function().empty() ? "?" : frame.function(), frame.module(),
                    frame.rule()});
  }
  text += Table(rows);
  if (!group.dumps().empty()) text += "\nKept dumps, oldest first:\n";
  for (const std::string& name : group.dumps()) text += "  " + PrintableText(name) + "\n";
  return text;
}

int Explain(Api& api, const Options& options) {
  v1::GetStackGroupRequest request;
  request.set_name(options.explain);
  auto group = api.GetStackGroup(request);
  if (!group) return Failed(group.error());
  return Print(options.json ? Json(*group) : Explained(*group)) ? kOk : kFailure;
}

}  // namespace

int RunGroups(Api& api, const Options& options) {
  if (!options.explain.empty()) return Explain(api, options);
  v1::ListStackGroupsRequest request;
  request.set_filter(options.filter);
  request.set_kind(options.hangs ? v1::CrashGroup::HANG : v1::CrashGroup::CRASH);
  v1::ListStackGroupsResponse all;
  do {
    auto page = api.ListStackGroups(request);
    if (!page) return Failed(page.error());
    for (v1::CrashGroup& group : *page->mutable_stack_groups()) *all.add_stack_groups() = std::move(group);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  std::stable_sort(all.mutable_stack_groups()->begin(), all.mutable_stack_groups()->end(), LastSeenFirst);

  if (options.json) return Print(Json(all)) ? kOk : kFailure;
  if (all.stack_groups().empty()) Complain(options.hangs ? "no hang was dumped by a rule" : "no crash was seen");
  return Print(GroupTable(all, options.hangs ? "HANG" : "CRASH")) ? kOk : kFailure;
}

}  // namespace stackd
