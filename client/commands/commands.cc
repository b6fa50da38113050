#include "client/commands/commands.h"

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "client/exit_code.h"
#include "client/output.h"
#include "daemon/export/export.h"
#include "daemon/serve/requests/frame_filter.h"

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

namespace {

void Write(v1::ExportDumpRequest::Format format, const v1::Dump& dump, const Sink& sink) {
  switch (format) {
    case v1::ExportDumpRequest::JSON:
      return ExportJson(dump, sink);
    case v1::ExportDumpRequest::FOLDED:
      return ExportFolded(dump, sink);
    case v1::ExportDumpRequest::PPROF:
      return ExportPprof(dump, sink);
    case v1::ExportDumpRequest::SPEEDSCOPE:
      return ExportSpeedscope(dump, sink);
    case v1::ExportDumpRequest::TEXT_BY_THREAD:
      return ExportTextByThread(dump, sink);
    default:
      return ExportText(dump, sink);
  }
}

}  // namespace

bool PrintAs(v1::ExportDumpRequest::Format format, const v1::Dump& dump) {
  bool written = true;
  Write(format, dump, [&](std::string_view bytes) { return written = Print(bytes); });
  return written;
}

Result<void> ExportDump(Api& api, const v1::ExportDumpRequest& request, const Sink& sink) {
  Result<void> exported = api.ExportDump(request, sink);
  if (exported || exported.error().code != Code::kUnimplemented) return exported;
  if (request.format() == v1::ExportDumpRequest::MINIDUMP) {
    return Error(Code::kFailedPrecondition,
                 api.address() + " is a gateway, and has no minidumps: ask the daemon of the pod");
  }
  v1::GetDumpRequest get;
  get.set_name(request.name());
  get.set_view(v1::DUMP_VIEW_FULL);
  auto dump = api.GetDump(get);
  if (!dump) return std::unexpected(dump.error());
  const auto shown = WithFrames(std::make_shared<const v1::Dump>(std::move(*dump)), request.frames());
  Write(request.format(), *shown, sink);
  return {};
}

bool PrintLines(const google::protobuf::RepeatedPtrField<std::string>& lines) {
  for (const std::string& line : lines) {
    if (!Print(line) || !Print("\n")) return false;
  }
  return true;
}

Result<void> PrintDump(Api& api, const v1::ExportDumpRequest& request) {
  bool written = true;
  Result<void> exported = ExportDump(api, request, [&](std::string_view bytes) { return written = Print(bytes); });
  if (!written) return Error(Code::kDataLoss, "the output is not complete");
  return exported;
}

}  // namespace stackd
