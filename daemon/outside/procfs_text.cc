#include "daemon/outside/procfs_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

constexpr size_t kMaxTextBytes = 1u << 20;

}  // namespace

std::string ReadProcfsText(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  while (file.valid() && text.size() < kMaxTextBytes) {
    char bytes[4096];
    const ssize_t got = read(file.get(), bytes, sizeof(bytes));
    if (got <= 0) break;
    text.append(bytes, static_cast<size_t>(got));
  }
  return text;
}

std::string_view FieldOfStatus(std::string_view status, std::string_view name) {
  // The name of the process stands in the first line, and cannot hold a line break.
  const std::string key = "\n" + std::string(name) + ":";
  const size_t at = status.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view value = status.substr(at + key.size());
  value = value.substr(0, value.find('\n'));
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  return value;
}

Uids UidsIn(std::string_view status) {
  const std::string text(FieldOfStatus(status, "Uid"));
  Uids uids;
  if (text.empty()) return uids;
  char* at = nullptr;
  uids.real = strtoll(text.c_str(), &at, 10);
  uids.effective = strtoll(at, &at, 10);
  uids.saved = strtoll(at, &at, 10);
  return uids;
}

uint64_t MaskIn(std::string_view status, std::string_view name) {
  return strtoull(std::string(FieldOfStatus(status, name)).c_str(), nullptr, 16);
}

int64_t NumberIn(std::string_view status, std::string_view name) {
  return strtoll(std::string(FieldOfStatus(status, name)).c_str(), nullptr, 10);
}

}  // namespace stackd
