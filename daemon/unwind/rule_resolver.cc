#include "daemon/unwind/rule_resolver.h"

#include <algorithm>
#include <span>

#include "daemon/unwind/unwind_table_cache.h"

namespace stackd {
namespace {

constexpr size_t kTableCacheBytes = 64 << 20;
// Limit for the CFI that is compiled for one address map: a process that maps many hostile files costs seconds, not hours.
// Two gigabytes of text have less.
constexpr uint64_t kMaxCfiBytesOfMap = 128 << 20;

std::shared_ptr<const UnwindTable> SharedTable(const Module& module) {
  static auto* cache = new UnwindTableCache(kTableCacheBytes);
  return cache->Get(module);
}

std::shared_ptr<const UnwindTable> EmptyTable() {
  static auto* table = new std::shared_ptr<const UnwindTable>(UnwindTable::Compile({}, {}, {}));
  return *table;
}

bool HasCode(const Module& module, uint64_t svma, std::span<const uint8_t> code) {
  const std::optional<uint64_t> position = module.SvmaToPosition(svma);
  if (!position) return false;
  const auto bytes = module.Read(*position, code.size());
  return bytes && std::ranges::equal(*bytes, code);
}

// mov $__NR_rt_sigreturn, %rax; syscall: where a signal handler returns to in musl and Go, which have no CFI there.
bool IsSigreturn(const Module& module, uint64_t svma) {
  constexpr uint8_t kCode[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
  return HasCode(module, svma, kCode);
}

// Where the first function of a thread returns to in musl, which has no CFI there.
bool IsInFirstFunction(const Module& module, uint64_t return_svma) {
  // mov %eax,%edi; xor %eax,%eax; mov $__NR_exit,%al; syscall; hlt: what a new thread does in the end.
  constexpr uint8_t kExit[] = {0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05, 0xf4};
  // xor %rbp,%rbp; mov %rsp,%rdi; lea ...(%rip),%rsi; and $-16,%rsp; call ...: what a program does at its begin.
  constexpr uint8_t kStart[] = {0x48, 0x31, 0xed, 0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35},
                    kCall[] = {0x48, 0x83, 0xe4, 0xf0, 0xe8};
  return HasCode(module, return_svma, kExit) ||
         (HasCode(module, return_svma - 22, kStart) && HasCode(module, return_svma - 9, kCall));
}

}  // namespace

std::optional<UnwindTable::PreciseRow> RuleResolver::Interpret(const AddressMap& map, uint64_t avma) {
  const Mapping* mapping = map.Find(avma);
  if (mapping == nullptr || mapping->module == nullptr) return std::nullopt;
  return TableOf(*mapping->module).Interpret(mapping->module.get(), avma - mapping->bias);
}

std::optional<UnwindTable::Function> RuleResolver::FunctionAt(const Mapping& mapping, uint64_t avma) {
  if (!mapping.executable || mapping.module == nullptr) return std::nullopt;
  return TableOf(*mapping.module).FunctionAt(avma - mapping.bias);
}

void RuleResolver::StartMap(uint64_t map_id) {
  map_id_ = map_id;
  if (++epoch_ == 0) {
    slots_.assign(kSlots, {});
    epoch_ = 1;
  }
  tables_.clear();
  cfi_bytes_of_map_ = 0;
}

UnwindRule RuleResolver::ResolveAnew(const AddressMap& map, uint64_t avma) {
  const Mapping* mapping = map.Find(avma);
  if (mapping == nullptr || !mapping->executable) return {.kind = RuleKind::kNotCode};
  if (mapping->module == nullptr) return {.kind = RuleKind::kNoCfi};
  uint64_t svma = avma - mapping->bias;
  UnwindRule rule = TableOf(*mapping->module).Find(svma);
  // `avma` is the one before the return address.
  if (rule.kind == RuleKind::kNoCfi && IsSigreturn(*mapping->module, svma + 1)) rule.kind = RuleKind::kSigreturn;
  if (rule.kind == RuleKind::kNoCfi && IsInFirstFunction(*mapping->module, svma + 1)) rule.kind = RuleKind::kRoot;
  return rule;
}

const UnwindTable& RuleResolver::TableOf(const Module& module) {
  auto [found, added] = tables_.try_emplace(&module);
  if (added) {
    found->second = cfi_bytes_of_map_ <= kMaxCfiBytesOfMap ? SharedTable(module) : EmptyTable();
    cfi_bytes_of_map_ += found->second->section_bytes();
  }
  return *found->second;
}

}  // namespace stackd
