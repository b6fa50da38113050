#include "daemon/managed/go/lock_code.h"

#include <algorithm>

#include "daemon/base/clock.h"
#include "daemon/managed/go/go_references.h"

namespace stackd {
namespace {

// A larger function may hold what it likes.
constexpr uint32_t kMaxFunctionBytes = 256 << 10;
constexpr size_t kMaxCallees = 4096;
// Functions that are decoded for one process.
constexpr size_t kMaxFunctions = 20'000;

// Begins with "sync." or "internal/sync.", which has the locks since Go 1.24; empty if it does not.
std::string_view InSync(std::string_view function) {
  constexpr std::string_view kInternal = "internal/", kSync = "sync.";
  if (function.starts_with(kInternal)) function.remove_prefix(kInternal.size());
  return function.starts_with(kSync) ? function.substr(kSync.size()) : std::string_view();
}

// What the compiler made of a function that `parent` defers: "main.pay.deferwrap1", "main.pay.func2".
bool IsPartOf(std::string_view function, std::string_view parent) {
  return function.size() > parent.size() && function.starts_with(parent) && function[parent.size()] == '.';
}

}  // namespace

bool GoLockCode::IsLock(std::string_view function) {
  constexpr std::string_view kNames[] = {"(*Mutex).Lock",
                                         "(*Mutex).lockSlow",
                                         "(*Mutex).TryLock",
                                         "(*RWMutex).Lock",
                                         "(*RWMutex).RLock",
                                         "(*RWMutex).TryLock",
                                         "(*RWMutex).TryRLock",
                                         "runtime_SemacquireRWMutex",
                                         "runtime_SemacquireRWMutexR",
                                         "runtime_SemacquireMutex",
                                         "(*rlocker).Lock"};
  return std::ranges::find(kNames, InSync(function)) != std::end(kNames);
}

bool GoLockCode::IsUnlock(std::string_view function) {
  constexpr std::string_view kNames[] = {"(*Mutex).Unlock",    "(*Mutex).unlockSlow",    "(*RWMutex).Unlock",
                                         "(*RWMutex).RUnlock", "(*RWMutex).rUnlockSlow", "(*rlocker).Unlock"};
  return std::ranges::find(kNames, InSync(function)) != std::end(kNames);
}

// Import paths of modules have a dot in their first part, or a name that the library has not.
bool GoLockCode::IsStandard(std::string_view function) {
  constexpr std::string_view kTops[] = {
      "archive", "bufio",   "bytes", "cmp",     "compress", "container", "context", "crypto",  "database", "encoding",
      "errors",  "expvar",  "fmt",   "hash",    "html",     "internal",  "io",      "iter",    "log",      "maps",
      "math",    "mime",    "net",   "os",      "path",     "reflect",   "regexp",  "runtime", "slices",   "sort",
      "strconv", "strings", "sync",  "syscall", "text",     "time",      "unicode", "unique",  "vendor",   "weak"};
  const std::string_view top = function.substr(0, function.find_first_of("/."));
  return std::ranges::find(kTops, top) != std::end(kTops);
}

std::optional<GoFunction> GoLockCode::FunctionAt(uint32_t entry) const {
  return binary_.FindFunction(binary_.text_svma() + entry);
}

void GoLockCode::AddCallee(const GoFunction& caller, const GoFunction& callee, bool is_called, Code* code) {
  if (is_called && IsLock(callee.name)) code->locks = true;
  if (is_called && IsUnlock(callee.name)) code->unlocks = true;
  const bool is_part = IsPartOf(callee.name, caller.name);
  if (is_part && CodeOf(callee).unlocks) code->unlocks = true;
  const bool is_of_program = !callee.name.starts_with("runtime.") && !IsLock(callee.name) && !IsUnlock(callee.name);
  if (is_called && is_of_program && code->callees.size() < kMaxCallees) code->callees.push_back(callee.entry);
}

const GoLockCode::Code& GoLockCode::CodeOf(const GoFunction& function) {
  const auto known = codes_.find(function.entry);
  if (known != codes_.end()) return known->second;
  Code& code = codes_[function.entry];
  const bool is_sized = function.end > function.entry && function.end - function.entry <= kMaxFunctionBytes;
  if (!is_sized || codes_.size() > kMaxFunctions || MonotonicNs() > deadline_ns_) return code;
  const std::vector<uint8_t> bytes = binary_.ReadCode(function);
  if (bytes.empty()) return code;
  code.known = true;
  code.calls_unnamed = HasIndirectCall(bytes);
  const uint64_t svma = binary_.text_svma() + function.entry;
  for (const GoReference& reference : GoReferencesOf(bytes, svma)) {
    if (reference.svma < binary_.text_svma()) continue;
    const std::optional<GoFunction> callee = binary_.FindFunction(reference.svma);
    const bool is_begin = callee && reference.svma - binary_.text_svma() == callee->entry;
    if (is_begin && callee->entry != function.entry) {
      AddCallee(function, *callee, reference.kind == GoReference::Kind::kCall, &code);
    }
  }
  std::ranges::sort(code.callees);
  code.callees.erase(std::ranges::unique(code.callees).begin(), code.callees.end());
  return code;
}

bool GoLockCode::Leaks(uint32_t entry, int depth) {
  const std::optional<GoFunction> function = FunctionAt(entry);
  if (!function || !CodeOf(*function).known) return true;
  Code& code = codes_.at(entry);
  std::optional<bool>& leaks = code.leaks[depth];
  if (leaks) return *leaks;
  bool locks = code.locks, unlocks = code.unlocks;
  for (uint32_t callee : code.callees) {
    const std::optional<GoFunction> called = FunctionAt(callee);
    unlocks = unlocks || (called && CodeOf(*called).releases());
    locks = locks || (depth > 0 && Leaks(callee, depth - 1));
  }
  leaks = locks && !unlocks;
  return *leaks;
}

bool GoLockCode::CallsUnnamed(uint64_t pc_avma) {
  const std::optional<GoFunction> function = binary_.FindFunction(pc_avma - bias_);
  return !function || CodeOf(*function).calls_unnamed;
}

bool GoLockCode::MayHold(uint64_t pc_avma) {
  const std::optional<GoFunction> function = binary_.FindFunction(pc_avma - bias_);
  if (!function) return true;
  const Code& code = CodeOf(*function);
  if (!code.known || code.locks || code.unlocks) return true;
  return std::ranges::any_of(code.callees,
                             [this](uint32_t callee) { return Leaks(callee, kMaxDepth) || codes_.at(callee).releases(); });
}

}  // namespace stackd
