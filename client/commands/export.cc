#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {
namespace {

int CannotWrite(const std::string& path) {
  Complain("cannot write " + path + ": " + strerror(errno));
  return kFailure;
}

}  // namespace

int RunExport(Api& api, const Options& options) {
  const v1::ExportDumpRequest::Format format = FormatOf(options);
  const bool is_text = format != v1::ExportDumpRequest::MINIDUMP && format != v1::ExportDumpRequest::PPROF;
  if (options.to == "-" && !is_text && isatty(STDOUT_FILENO)) {
    Complain("the format " + options.format + " is not text: name a file with --to FILE, or redirect the output");
    return kUsage;
  }
  if (options.to == "-") return RunShow(api, options);

  // Under another name until it is whole.
  const std::string part = options.to + ".part";
  FILE* file = fopen(part.c_str(), "we");
  if (file == nullptr) return CannotWrite(part);
  bool written = true;
  Result<void> exported = api.ExportDump(ExportRequest(options.name, options), [&](std::string_view bytes) {
    return written = fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  });
  written = fclose(file) == 0 && written;
  int exit_code = kOk;
  if (!exported) {
    exit_code = Failed(exported.error());
  } else if (!written || rename(part.c_str(), options.to.c_str()) != 0) {
    exit_code = CannotWrite(options.to);
  }
  if (exit_code != kOk) remove(part.c_str());
  return exit_code;
}

}  // namespace stackd
