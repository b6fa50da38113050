#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "client/commands/commands.h"
#include "client/commands/process_tree.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

// The members of a tree are dumped about at once: what one waits for another does.
constexpr size_t kDumpsAtOnce = 8;

using Dumps = std::vector<Result<v1::Dump>>;  // one for each member

Dumps DumpAll(Api& api, const ProcessTree& tree, const Options& options) {
  Dumps dumps(tree.members.size(), Error(Code::kUnknown, "not dumped"));
  std::atomic<size_t> next = 0;
  const auto dump_some = [&] {
    for (size_t i = next++; i < dumps.size(); i = next++) {
      v1::CreateDumpRequest request;
      request.set_process(tree.members[i].process.name());
      request.set_view(v1::DUMP_VIEW_BASIC);
      request.set_quiet(QuietOf(options));
      dumps[i] = api.CreateDump(request);
    }
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(kDumpsAtOnce, dumps.size()); ++i) threads.emplace_back(dump_some);
  threads.clear();
  return dumps;
}

std::string Title(const v1::Process& process) {
  return Printable(process.display_name()) + " (pid " + std::to_string(process.pid()) + ")";
}

std::string TreeText(const ProcessTree& tree, const Dumps& dumps) {
  std::string text;
  for (size_t i = 0; i < dumps.size(); ++i) {
    const auto& [process, depth] = tree.members[i];
    text += std::string(2 * static_cast<size_t>(depth), ' ') + Title(process) + ": ";
    text += dumps[i] ? ThreadsText(dumps[i]->thread_counts()) + " threads, " + dumps[i]->name()
                     : "no dump, " + Printable(dumps[i].error().message);
    text += "\n";
  }
  return text;
}

// Tells the findings of all members, worst first; harmless ones stand in the dumps alone.
std::string FindingsText(const ProcessTree& tree, const Dumps& dumps) {
  std::string text;
  for (const auto severity : {v1::Finding::HANG, v1::Finding::SUSPICIOUS}) {
    for (size_t i = 0; i < dumps.size(); ++i) {
      if (!dumps[i]) continue;
      for (const v1::Finding& finding : dumps[i]->findings()) {
        if (finding.severity() != severity) continue;
        text += v1::Finding::Severity_Name(severity) + " " + v1::Finding::Kind_Name(finding.kind()) + " in " +
                Title(tree.members[i].process) + ": " + Printable(finding.explanation()) + "\n";
      }
    }
  }
  return text.empty() ? text : "\n" + text;
}

// The dumps one after the other, as the daemon renders them.
Result<void> PrintDumps(Api& api, const ProcessTree& tree, const Dumps& dumps, const Options& options) {
  const auto format = FormatOf(options);
  const bool is_json = format == v1::ExportDumpRequest::JSON;
  std::string separator = is_json ? "{\"dumps\": [" : "";
  for (size_t i = 0; i < dumps.size(); ++i) {
    if (!dumps[i]) continue;
    const bool is_text = !is_json && format != v1::ExportDumpRequest::FOLDED;
    if (!Print(std::exchange(separator, is_json ? ", " : "")) ||
        (is_text && !Print("\n== " + Title(tree.members[i].process) + "\n\n"))) {
      return Error(Code::kDataLoss, "the output is not complete");
    }
    Result<void> printed = PrintDump(api, ExportRequest(dumps[i]->name(), options));
    if (!printed) return printed;
  }
  if (is_json && !Print("]}\n")) return Error(Code::kDataLoss, "the output is not complete");
  return {};
}

int ExitCodeOfAll(const ProcessTree& tree, const Dumps& dumps) {
  int exit_code = kOk;
  for (size_t i = 0; i < dumps.size(); ++i) {
    if (!dumps[i]) Complain(Title(tree.members[i].process) + " has no dump: " + dumps[i].error().message);
    if (!dumps[i] || PartialOrOk(*dumps[i]) != kOk) exit_code = kPartial;
  }
  for (const std::string& name : tree.doubtful) {
    Complain(name + " is left out: several processes may be its parent, as their containers have no names");
  }
  return exit_code;
}

}  // namespace

int RunDumpTree(Api& api, const Options& options) {
  v1::GetProcessRequest request;
  request.set_name(options.name);
  auto root = api.GetProcess(request);
  if (!root) return Failed(root.error());
  auto processes = AllProcesses(api);
  if (!processes) return Failed(processes.error());
  const ProcessTree tree = TreeOf(root->name(), *processes);
  if (tree.members.empty()) return Failed({Code::kNotFound, root->name() + " has exited", "PROCESS_EXITED"});

  const Dumps dumps = DumpAll(api, tree, options);
  if (std::ranges::none_of(dumps, &Result<v1::Dump>::has_value)) return Failed(dumps[0].error());
  const auto format = FormatOf(options);
  const bool is_text = format != v1::ExportDumpRequest::JSON && format != v1::ExportDumpRequest::FOLDED;
  if (is_text && !Print(TreeText(tree, dumps) + FindingsText(tree, dumps))) return kFailure;
  Result<void> printed = PrintDumps(api, tree, dumps, options);
  return printed ? ExitCodeOfAll(tree, dumps) : Failed(printed.error());
}

}  // namespace stackd
