#include "client/commands/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {
namespace {

int CannotWrite(const std::string& path) {
  Complain("cannot write " + path + ": " + strerror(errno));
  return kFailure;
}

}  // namespace

bool MayPrint(const Options& options) {
  const bool is_text = options.json || (options.format != "minidump" && options.format != "pprof");
  if (options.to != "-" || is_text || !isatty(STDOUT_FILENO)) return true;
  Complain("the format " + options.format + " is not text: name a file with --to FILE, or redirect the output");
  return false;
}

int WriteFile(const std::string& path, const std::function<int(const Sink&)>& write) {
  const std::string part = path + ".part";
  FILE* file = fopen(part.c_str(), "we");
  if (file == nullptr) return CannotWrite(part);
  bool written = true;
  int exit_code =
      write([&](std::string_view bytes) { return written = fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size(); });
  written = fclose(file) == 0 && written;
  if (exit_code == kOk && (!written || rename(part.c_str(), path.c_str()) != 0)) exit_code = CannotWrite(path);
  if (exit_code != kOk) remove(part.c_str());
  return exit_code;
}

}  // namespace stackd
