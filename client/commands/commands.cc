#include "client/commands/commands.h"

#include <cstdlib>
#include <string_view>

#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/export/export.h"

namespace stackd {

int Failed(const Status& status) {
  Complain(status.message);
  return ExitCodeOf(status);
}

std::string DirOf(const std::string& address) {
  constexpr std::string_view kPrefix = "unix:", kSuffix = "/api.sock";
  if (address.starts_with(kPrefix) && address.ends_with(kSuffix)) {
    return address.substr(kPrefix.size(), address.size() - kPrefix.size() - kSuffix.size());
  }
  const char* dir = getenv("STACKD_DIR");
  return dir == nullptr || *dir == '\0' ? "/run/stackd" : dir;
}

Result<std::vector<v1::Process>> AllProcesses(Api& api, const std::string& filter) {
  v1::ListProcessesRequest request;
  request.set_filter(filter);
  std::vector<v1::Process> processes;
  do {
    auto page = api.ListProcesses(request);
    if (!page) return std::unexpected(page.error());
    processes.insert(processes.end(), page->processes().begin(), page->processes().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return processes;
}

v1::ExportDumpRequest::Format FormatOf(const Options& options) {
  if (options.json || options.format == "json") return v1::ExportDumpRequest::JSON;
  if (options.format == "minidump") return v1::ExportDumpRequest::MINIDUMP;
  if (options.format == "folded") return v1::ExportDumpRequest::FOLDED;
  if (options.format == "pprof") return v1::ExportDumpRequest::PPROF;
  if (options.format == "speedscope") return v1::ExportDumpRequest::SPEEDSCOPE;
  return options.all ? v1::ExportDumpRequest::TEXT_BY_THREAD : v1::ExportDumpRequest::TEXT;
}

v1::Quiet QuietOf(const Options& options) {
  if (options.quiet == "only") return v1::ONLY;
  return options.quiet == "never" ? v1::NEVER : v1::PREFER;
}

v1::FrameFilter FramesOf(const Options& options) {
  if (options.managed_only) return v1::MANAGED_FRAMES;
  return options.native_only ? v1::NATIVE_FRAMES : v1::ALL_FRAMES;
}

v1::ExportDumpRequest ExportRequest(const std::string& name, const Options& options) {
  v1::ExportDumpRequest request;
  request.set_name(name);
  request.set_format(FormatOf(options));
  request.set_frames(FramesOf(options));
  return request;
}

int PartialOrOk(const v1::Dump& dump) {
  if (!dump.stored()) Complain("the dump is not stored; this output is the only copy");
  return CodeOfState(dump);
}

int CodeOfState(const v1::Dump& dump) {
  if (dump.state() != v1::Dump::PARTIAL) return kOk;
  Complain("the dump is partial" + (dump.notes().empty() ? std::string() : ": " + dump.notes(0)));
  return kPartial;
}

bool PrintAs(v1::ExportDumpRequest::Format format, const v1::Dump& dump) {
  bool written = true;
  const Sink sink = [&](std::string_view bytes) { return written = Print(bytes); };
  switch (format) {
    case v1::ExportDumpRequest::JSON:
      ExportJson(dump, sink);
      break;
    case v1::ExportDumpRequest::FOLDED:
      ExportFolded(dump, sink);
      break;
    case v1::ExportDumpRequest::TEXT_BY_THREAD:
      ExportTextByThread(dump, sink);
      break;
    default:
      ExportText(dump, sink);
      break;
  }
  return written;
}

bool PrintLines(const google::protobuf::RepeatedPtrField<std::string>& lines) {
  for (const std::string& line : lines) {
    if (!Print(line) || !Print("\n")) return false;
  }
  return true;
}

Result<void> PrintDump(Api& api, const v1::ExportDumpRequest& request) {
  bool written = true;
  Result<void> exported = api.ExportDump(request, [&](std::string_view bytes) { return written = Print(bytes); });
  if (!written) return Error(Code::kDataLoss, "the output is not complete");
  return exported;
}

}  // namespace stackd
