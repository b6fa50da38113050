#include <google/protobuf/struct.pb.h>

#include <charconv>

#include "client/commands/commands.h"
#include "client/commands/doctor_checks.h"
#include "client/commands/process_checks.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/base/printable.h"

namespace stackd {
namespace {

void Append(std::vector<Finding> more, std::vector<Finding>* findings) {
  findings->insert(findings->end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

const char* GradeName(Finding::Grade grade) {
  return grade == Finding::kGood ? "ok" : grade == Finding::kRemark ? "note" : "FAIL";
}

std::string Text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string grade = GradeName(finding.grade);
    text += grade + std::string(6 - grade.size(), ' ') + PrintableText(finding.text) + "\n";
    if (!finding.way_out.empty()) text += "      -> " + finding.way_out + "\n";
  }
  return text;
}

std::string JsonText(const std::vector<Finding>& findings) {
  google::protobuf::Struct report;
  auto* list = (*report.mutable_fields())["findings"].mutable_list_value();
  for (const Finding& finding : findings) {
    auto& fields = *list->add_values()->mutable_struct_value()->mutable_fields();
    fields["grade"].set_string_value(GradeName(finding.grade));
    fields["text"].set_string_value(finding.text);
    if (!finding.way_out.empty()) fields["wayOut"].set_string_value(finding.way_out);
  }
  return Json(report);
}

}  // namespace

int RunDoctor(Api& api, const Options& options) {
  int pid = 0;
  auto [end, error] = std::from_chars(options.name.data(), options.name.data() + options.name.size(), pid);
  if (!options.name.empty() && (error != std::errc() || *end != '\0' || pid <= 0)) {
    Complain("\"" + options.name + "\" is not a pid; stackctl doctor takes the pid of a process that is not listed");
    return kUsage;
  }
  const std::string dir = DirOf(options.address);
  std::vector<Finding> findings;
  if (options.address.starts_with("unix:")) Append(CheckDir(dir), &findings);
  auto daemon = api.GetDaemon();
  std::vector<v1::Process> processes;
  if (daemon) {
    Append(CheckDaemon(*daemon), &findings);
    if (auto all = AllProcesses(api)) processes = std::move(*all);
    Append(CheckProcesses(processes), &findings);
  } else {
    findings.push_back(Bad(daemon.error().message, ""));
  }
  Append(CheckKernel(), &findings);
  if (pid > 0) {
    if (const v1::Process* process = FindConnected("/proc", pid, processes)) {
      const std::string as =
          process->pid() == pid ? "" : ", as pid " + std::to_string(process->pid()) + " of its container";
      findings.push_back(
          Good("the process with pid " + options.name + " is connected" + as, "stackctl dump " + process->name()));
    } else {
      if (daemon) findings.push_back(Bad("no process with pid " + options.name + " is connected", ""));
      Append(CheckProcess("/proc", pid, dir), &findings);
    }
    Append(CheckOutside("/proc", pid), &findings);
  }
  if (!Print(options.json ? JsonText(findings) : Text(findings))) return kFailure;
  if (!daemon) return ExitCodeOf(daemon.error());
  for (const Finding& finding : findings) {
    if (finding.grade == Finding::kBad) return kFailure;
  }
  return kOk;
}

}  // namespace stackd
