#include "daemon/store/dump_name.h"

#include <algorithm>

namespace stackd {
namespace {

constexpr std::string_view kProcesses = "processes/";
constexpr std::string_view kDumps = "/dumps/";
constexpr size_t kMaxIdBytes = 128;

bool IsIdCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

bool IsProcessName(std::string_view name) {
  return name.starts_with(kProcesses) && IsResourceId(name.substr(kProcesses.size()));
}

}  // namespace

bool IsResourceId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes && std::ranges::all_of(id, IsIdCharacter);
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 100;
  std::string quoted = "\"";
  for (char c : text.substr(0, kMaxBytes)) quoted += c >= ' ' && c <= '~' ? c : '?';
  return quoted + (text.size() > kMaxBytes ? "…\"" : "\"");
}

std::string_view ProcessOfDump(std::string_view dump_name) { return dump_name.substr(0, dump_name.find(kDumps)); }

Result<void> CheckDumpName(std::string_view name) {
  const std::string_view process = ProcessOfDump(name);
  if (IsProcessName(process) && process.size() < name.size() && IsResourceId(name.substr(process.size() + kDumps.size())))
    return {};
  return Error(Code::kInvalidArgument,
               Quoted(name) + " is not the name of a dump: expected \"processes/{process}/dumps/{dump}\"", "BAD_NAME");
}

Result<void> CheckProcessName(std::string_view name) {
  if (IsProcessName(name)) return {};
  return Error(Code::kInvalidArgument, Quoted(name) + " is not the name of a process: expected \"processes/{process}\"",
               "BAD_NAME");
}

}  // namespace stackd
