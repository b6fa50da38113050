#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/place.h"
#include "daemon/base/clock.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

std::string OrDash(std::string text) { return text.empty() ? "-" : text; }

std::string UptimeText(const v1::Process& process) {
  if (!process.has_start_time()) return "-";
  return SpanText(std::max<int64_t>(WallNs() - process.start_time().seconds() * kNsPerSecond, 0));
}

std::vector<std::string> Row(const v1::Process& process) {
  return {std::to_string(process.pid()),  process.display_name(), std::to_string(process.thread_count()),
          std::to_string(process.uid()),  ShareText(process),     process.hostname(),
          TimeText(process.start_time()), process.name()};
}

std::vector<std::string> WideRow(const v1::Process& process) {
  return {std::to_string(process.pid()),
          process.display_name(),
          process.parent_pid() == 0 ? "-" : std::to_string(process.parent_pid()),
          OrDash(WorkloadOf(process)),
          OrDash(PodOf(process)),
          OrDash(ContainerOf(process)),
          HealthText(process),
          std::to_string(process.thread_count()),
          UptimeText(process),
          std::to_string(process.uid()),
          ShareText(process),
          process.hostname(),
          process.name()};
}

std::string ProcessTable(const std::vector<v1::Process>& processes, bool is_wide) {
  std::vector<std::vector<std::string>> rows;
  if (is_wide) {
    rows.push_back({"PID", "NAME", "PARENT", "WORKLOAD", "POD", "CONTAINER", "HEALTH", "THREADS", "UPTIME", "UID", "SHARES",
                    "HOST", "PROCESS"});
  } else {
    rows.push_back({"PID", "NAME", "THREADS", "UID", "SHARES", "HOST", "STARTED", "PROCESS"});
  }
  for (const v1::Process& process : processes) rows.push_back(is_wide ? WideRow(process) : Row(process));
  return Table(rows);
}

bool PrintEvent(const char* what, const v1::Process& process, const Options& options) {
  if (options.json) {
    std::string json = Json(process, false);
    json.pop_back();
    return Print("{\"event\": \"" + std::string(what) + "\", \"process\": " + json + "}\n");
  }
  google::protobuf::Timestamp now;
  now.set_seconds(WallNs() / kNsPerSecond);
  return Print(TimeText(now) + "  " + what + "  " + Printable(process.display_name()) + "  " +
               Printable(WhereText(process)) + "  " + process.name() + "\n");
}

// A line for each process that comes, goes, or changes its health. A daemon that is away is awaited.
int WatchProcesses(Api& api, const Options& options, const std::vector<v1::Process>& first) {
  std::map<std::string, v1::Process> known;
  for (const v1::Process& process : first) known[process.name()] = process;
  bool is_away = false;
  while (FlushOutput()) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    auto processes = AllProcesses(api, options.filter);
    if (!processes) {
      if (ExitCodeOf(processes.error()) != kCannotConnect) return Failed(processes.error());
      if (!std::exchange(is_away, true)) Complain(processes.error().message);
      continue;
    }
    is_away = false;
    std::map<std::string, v1::Process> now;
    for (const v1::Process& process : *processes) now[process.name()] = process;
    for (const auto& [name, process] : known) {
      if (!now.contains(name) && !PrintEvent("gone", process, options)) return kFailure;
    }
    for (const auto& [name, process] : now) {
      const auto before = known.find(name);
      if (before == known.end() && !PrintEvent("came", process, options)) return kFailure;
      if (before != known.end() && before->second.health() != process.health() &&
          !PrintEvent(HealthText(process).c_str(), process, options)) {
        return kFailure;
      }
    }
    known = std::move(now);
  }
  return kFailure;
}

}  // namespace

int RunPs(Api& api, const Options& options) {
  auto processes = AllProcesses(api, options.filter);
  if (!processes) return Failed(processes.error());
  if (options.json) {
    v1::ListProcessesResponse all;
    for (const v1::Process& process : *processes) *all.add_processes() = process;
    if (!Print(Json(all, !options.watch))) return kFailure;
  } else {
    if (processes->empty()) {
      Complain(
          "no process is connected: start one with LD_PRELOAD=/path/to/libstackd_agent.so, or ask stackctl doctor PID");
    }
    if (!Print(ProcessTable(*processes, options.wide))) return kFailure;
  }
  return options.watch ? WatchProcesses(api, options, *processes) : kOk;
}

}  // namespace stackd
