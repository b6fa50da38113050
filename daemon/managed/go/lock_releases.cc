#include "daemon/managed/go/lock_releases.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "daemon/base/clock.h"
#include "daemon/managed/go/go_references.h"
#include "daemon/managed/go/lock_code.h"
#include "daemon/modules/loaded_sections.h"

namespace stackd {
namespace {

// A program that has more is not judged. Together they need some 100 MiB.
constexpr size_t kMaxFunctions = 200'000;
constexpr size_t kMaxReferences = 4'000'000;
constexpr size_t kMaxWords = 400'000;
constexpr size_t kMaxLockerTables = 100'000;
constexpr uint32_t kMaxFunctionBytes = 16 << 20;
constexpr uint64_t kMaxDataBytes = 48 << 20;
// How deep a function may call one that locks or unlocks for it.
constexpr int kRounds = 8;
// What is between the address of a function and the call that starts it as a goroutine.
constexpr size_t kMaxStartBytes = 96;

enum class Role : uint8_t { kProgram, kLock, kUnlock, kStartsGoroutine, kWriteBarrier, kReflection };

struct Function {
  uint32_t entry = 0, end = 0;
  Role role = Role::kProgram;
  bool is_called_by_c = false;
  bool is_method = false, is_exported = false;
  bool is_defer_wrapper = false;  // made by the compiler for a defer, and called by nothing else
  bool locks = false, unlocks = false;
  GoInterfaceCalls interface_calls;
  std::vector<uint32_t> callees;
  std::vector<uint32_t> values;  // whose addresses it takes
  std::vector<uint32_t> kept;    // of these: those that may outlive it
  bool leaks = false, releases = false;
};

std::optional<Role> RoleOf(std::string_view name) {
  constexpr std::string_view kMethod = "-fm";
  if (!GoLockCode::IsStandard(name) || name.ends_with(kMethod)) return Role::kProgram;
  if (GoLockCode::IsLock(name)) return Role::kLock;
  if (GoLockCode::IsUnlock(name)) return Role::kUnlock;
  if (name == "runtime.newproc") return Role::kStartsGoroutine;
  if (name.starts_with("runtime.gcWriteBarrier")) return Role::kWriteBarrier;
  if (name == "reflect.Value.Method" || name == "reflect.Value.MethodByName") return Role::kReflection;
  return std::nullopt;
}

// "main.(*account).Release", but no closure in it.
bool IsMethodOfPointer(std::string_view name) {
  const size_t receiver_end = name.rfind(").");
  return receiver_end != name.npos && name.find('.', receiver_end + 2) == name.npos;
}

bool IsExported(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return last.empty() || last.front() < 'a' || last.front() > 'z';
}

bool IsCode(const NamedSection& section) { return section.name.starts_with(".text") || section.name.starts_with(".plt"); }
bool IsRelocations(const NamedSection& section) { return section.name.starts_with(".rela"); }
bool IsTable(const NamedSection& section) { return section.name.ends_with(".gopclntab"); }
bool HasTypes(const NamedSection& section) { return section.name == ".rodata" || section.name.starts_with(".data.rel.ro"); }

template <typename T>
T Load(std::span<const uint8_t> bytes, size_t at) {
  T value;
  memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

class GoReleaseFinder {
 public:
  GoReleaseFinder(const Module& module, const Pclntab& functions, uint64_t text_svma, int64_t deadline_ns)
      : module_(module), table_(functions), text_svma_(text_svma), deadline_ns_(deadline_ns) {}

  std::shared_ptr<const GoLockReleases> Find() {
    if (!TakeFunctions() || !ReadData() || !ReadCode() || !Settle()) return nullptr;
    std::shared_ptr<GoLockReleases> found(new GoLockReleases());
    found->text_svma_ = text_svma_;
    found->may_be_called_unseen_ = uses_reflection_ || may_load_code_ || IsKept() || IsMethod();
    for (const Function& function : functions_) {
      if (function.releases) found->releasing_.push_back(function.entry);
      const bool may_use = function.interface_calls.first || function.interface_calls.second;
      if (has_locker_ && may_use) found->locker_users_.push_back(function.entry);
    }
    return found;
  }

 private:
  struct Section {
    NamedSection head;
    std::vector<uint8_t> bytes;
  };

  bool TakeFunctions();
  bool ReadData();
  bool ReadCode();
  void AddReferences(std::span<const uint8_t> code, Function* function);
  void AddAddress(std::span<const GoReference> references, Function* function);
  bool StartsGoroutine(std::span<const GoReference> references) const;
  // False: the time is over, and a function that releases may not be known as one.
  bool Settle();
  bool IsKept() const;
  bool IsMethod() const;

  const Function* FunctionAt(uint64_t svma) const {
    if (svma - text_svma_ > UINT32_MAX) return nullptr;
    const auto known = by_svma_.find(svma);
    return known == by_svma_.end() ? nullptr : &functions_[known->second];
  }
  uint32_t IndexOf(const Function& function) const { return static_cast<uint32_t>(&function - functions_.data()); }
  // Calls `take(svma, word)` for each word of the data, as it is once the program is loaded.
  template <typename Take>
  void ForEachWord(const Take& take) const;

  const Module& module_;
  const Pclntab& table_;
  const uint64_t text_svma_;
  const int64_t deadline_ns_;
  std::vector<Function> functions_;  // sorted by entry
  std::unordered_map<uint64_t, uint32_t> by_svma_;
  std::vector<Section> sections_;
  // Words of the data that have the address of a function: values of functions, and methods in tables of interfaces.
  std::unordered_map<uint64_t, uint32_t> words_;
  std::unordered_set<uint64_t> locker_tables_;  // where a table of an interface with Unlock() may begin
  size_t references_ = 0;
  bool uses_reflection_ = false, may_load_code_ = false, has_locker_ = false;
};

bool GoReleaseFinder::TakeFunctions() {
  for (uint64_t i = 0; i < table_.function_count(); ++i) {
    const std::optional<GoFunction> known = table_.FunctionAt(i);
    if (!known || MonotonicNs() > deadline_ns_) return false;
    may_load_code_ = may_load_code_ || known->name == "plugin.Open";
    const std::optional<Role> role = RoleOf(known->name);
    if (!role || known->end <= known->entry) continue;
    if (functions_.size() >= kMaxFunctions || known->end - known->entry > kMaxFunctionBytes) return false;
    Function function{.entry = known->entry, .end = known->end, .role = *role};
    function.is_called_by_c = known->name.starts_with("_cgoexp_");
    function.is_method = IsMethodOfPointer(known->name);
    function.is_exported = IsExported(known->name);
    function.is_defer_wrapper = known->name.find(".deferwrap") != known->name.npos;
    by_svma_.emplace(text_svma_ + function.entry, functions_.size());
    functions_.push_back(std::move(function));
  }
  return true;
}

template <typename Take>
void GoReleaseFinder::ForEachWord(const Take& take) const {
  for (const Section& section : sections_) {
    if (!IsRelocations(section.head)) {
      for (size_t at = (8 - section.head.svma % 8) % 8; at + 8 <= section.bytes.size(); at += 8) {
        take(section.head.svma + at, Load<uint64_t>(section.bytes, at));
      }
      continue;
    }
    for (size_t at = 0; at + sizeof(Elf64_Rela) <= section.bytes.size(); at += sizeof(Elf64_Rela)) {
      const auto relocation = Load<Elf64_Rela>(section.bytes, at);
      const bool is_address = ELF64_R_TYPE(relocation.r_info) == R_X86_64_RELATIVE;
      if (is_address) take(relocation.r_offset, static_cast<uint64_t>(relocation.r_addend));
    }
  }
}

bool GoReleaseFinder::ReadData() {
  // Where the table of an interface has its first method, and how many are looked at.
  constexpr uint64_t kFirstMethod = 24, kMethods = 4;
  uint64_t left_bytes = kMaxDataBytes;
  for (NamedSection& head : LoadedSections(module_)) {
    if (IsCode(head) || IsTable(head)) continue;
    auto bytes = module_.Read(head.file_offset, head.size_bytes, left_bytes);
    if (!bytes || MonotonicNs() > deadline_ns_) return false;
    left_bytes -= bytes->size();
    sections_.push_back({std::move(head), std::move(*bytes)});
  }
  ForEachWord([this](uint64_t svma, uint64_t word) {
    const Function* function = FunctionAt(word);
    if (function == nullptr || words_.size() > kMaxWords || locker_tables_.size() > kMaxLockerTables) return;
    words_.emplace(svma, IndexOf(*function));
    if (function->role != Role::kUnlock) return;
    for (uint64_t i = 0; i < kMethods; ++i) locker_tables_.insert(svma - kFirstMethod - 8 * i);
  });
  return words_.size() <= kMaxWords && locker_tables_.size() <= kMaxLockerTables;
}

bool GoReleaseFinder::ReadCode() {
  for (Function& function : functions_) {
    if (function.role != Role::kProgram) continue;
    const auto position = module_.SvmaToPosition(text_svma_ + function.entry);
    if (!position || MonotonicNs() > deadline_ns_) return false;
    const auto code = module_.Read(*position, function.end - function.entry);
    if (!code) return false;
    function.interface_calls = GoInterfaceCallsOf(*code);
    AddReferences(*code, &function);
    if (references_ > kMaxReferences) return false;
  }
  return true;
}

void GoReleaseFinder::AddReferences(std::span<const uint8_t> code, Function* function) {
  const std::vector<GoReference> references = GoReferencesOf(code, text_svma_ + function->entry);
  for (size_t i = 0; i < references.size(); ++i) {
    if (references[i].kind != GoReference::Kind::kCall) {
      AddAddress(std::span(references).subspan(i), function);
      continue;
    }
    const Function* callee = FunctionAt(references[i].svma);
    if (callee == nullptr || callee == function) continue;
    function->locks = function->locks || callee->role == Role::kLock;
    function->unlocks = function->unlocks || callee->role == Role::kUnlock;
    uses_reflection_ = uses_reflection_ || callee->role == Role::kReflection;
    if (callee->role == Role::kProgram) function->callees.push_back(IndexOf(*callee));
  }
  references_ += function->callees.size() + function->values.size();
}

// The first of the references is an address.
void GoReleaseFinder::AddAddress(std::span<const GoReference> references, Function* function) {
  using Kind = GoReference::Kind;
  const GoReference& address = references.front();
  has_locker_ = has_locker_ || locker_tables_.contains(address.svma);
  const Function* target = FunctionAt(address.svma);
  const bool is_closure = target != nullptr;
  if (const auto word = words_.find(address.svma); !is_closure && word != words_.end()) target = &functions_[word->second];
  if (target == nullptr || target->role != Role::kProgram) return;
  function->values.push_back(IndexOf(*target));
  const bool stays = address.kind == Kind::kDefer || (is_closure && address.kind == Kind::kStack);
  if (!stays && !target->is_defer_wrapper && !StartsGoroutine(references)) function->kept.push_back(IndexOf(*target));
}

// Whether nothing is done with the address but to start a goroutine that calls the function.
bool GoReleaseFinder::StartsGoroutine(std::span<const GoReference> references) const {
  for (const GoReference& next : references.subspan(1)) {
    if (next.kind != GoReference::Kind::kCall || next.end - references.front().end > kMaxStartBytes) return false;
    const Function* callee = FunctionAt(next.svma);
    if (callee == nullptr || callee->role != Role::kWriteBarrier) {
      return callee != nullptr && callee->role == Role::kStartsGoroutine;
    }
  }
  return false;
}

bool GoReleaseFinder::Settle() {
  for (Function& function : functions_) {
    const GoInterfaceCalls& calls = function.interface_calls;
    function.unlocks = function.unlocks || (has_locker_ && calls.second && !calls.first);
  }
  const auto leaks = [this](uint32_t index) { return functions_[index].leaks; };
  const auto releases = [this](uint32_t index) { return functions_[index].releases; };
  for (int round = 0; round < kRounds; ++round) {
    if (MonotonicNs() > deadline_ns_) return false;
    for (Function& function : functions_) {
      if (function.role != Role::kProgram) continue;
      const bool locks = function.locks || std::ranges::any_of(function.callees, leaks);
      const bool unlocks = function.unlocks || std::ranges::any_of(function.callees, releases) ||
                           std::ranges::any_of(function.values, releases);
      function.leaks = locks && !unlocks;
      function.releases = unlocks && !locks;
    }
  }
  return true;
}

// Whether a value that outlives its function is one that releases.
bool GoReleaseFinder::IsKept() const {
  const auto releases = [this](uint32_t index) { return functions_[index].releases; };
  for (const Function& function : functions_) {
    if ((function.is_called_by_c && function.releases) || std::ranges::any_of(function.kept, releases)) return true;
  }
  std::unordered_set<uint64_t> values;
  for (const auto& [svma, index] : words_) {
    if (!releases(index)) continue;
    // In the table of an interface.
    if (functions_[index].is_method) return true;
    values.insert(svma);
  }
  bool is_in_data = false;
  ForEachWord([&](uint64_t /*svma*/, uint64_t word) { is_in_data = is_in_data || values.contains(word); });
  return is_in_data;
}

// Whether an exported method that releases is in the description of its type. Where the linker leaves it there, an
// interface may call it that is made at run time. Source: abi.Method, whose last two members are offsets of code, for
// values behind a pointer and for others.
bool GoReleaseFinder::IsMethod() const {
  std::unordered_set<uint32_t> releasing;
  for (const Function& function : functions_) {
    if (function.releases && function.is_exported) releasing.insert(function.entry);
  }
  const auto releases = [&](const Section& section, size_t at) {
    return releasing.contains(Load<uint32_t>(section.bytes, at));
  };
  for (const Section& section : sections_) {
    if (!HasTypes(section.head)) continue;
    for (size_t at = 0; at + 8 <= section.bytes.size(); at += 4) {
      if (releases(section, at) && releases(section, at + 4)) return true;
    }
  }
  return false;
}

std::shared_ptr<const GoLockReleases> GoLockReleases::Find(const Module& module, const Pclntab& functions,
                                                           uint64_t text_svma, int64_t deadline_ns) {
  // One at a time, for the memory that it needs.
  static std::mutex turn;
  const std::unique_lock lock(turn, std::try_to_lock);
  if (!lock) return nullptr;
  return GoReleaseFinder(module, functions, text_svma, deadline_ns).Find();
}

bool GoLockReleases::Releases(uint32_t entry) const { return std::ranges::binary_search(releasing_, entry); }

bool GoLockReleases::MayUseLocker(uint32_t entry) const { return std::ranges::binary_search(locker_users_, entry); }

}  // namespace stackd
