// The input is a section of call frame information, behind one byte that says which kind. The compiled table and the
// interpreter must agree wherever the table has a row, and every rule must be applicable to some stack.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "daemon/unwind/cfi_step.h"
#include "daemon/unwind/unwind_table.h"

namespace {

using stackd::CfiFormat;
using stackd::CfiSection;
using stackd::CompactRule;
using stackd::RegisterFile;
using stackd::Registers;
using stackd::RuleKind;
using stackd::Segment;
using stackd::StackCopy;
using stackd::UnwindRule;
using stackd::UnwindTable;

constexpr uint64_t kSectionSvma = 0x10000;
const Segment kCode[] = {{.file_offset = 0, .file_bytes = 0, .svma = 0, .memory_bytes = 0x10000, .executable = true}};
constexpr uint64_t kStackBase = 0x7fff0000;
constexpr size_t kMaxRowsTried = 256;

StackCopy SomeStack() {
  constexpr uint32_t kWords = 64;
  std::vector<uint64_t> words(kWords);
  for (uint32_t i = 0; i < kWords; ++i) words[i] = kStackBase + 8 * ((i * 7) % kWords);
  return StackCopy(kStackBase, kWords, {~uint64_t{0}}, words);
}

RegisterFile SomeRegisters() {
  RegisterFile file;
  for (uint64_t i = 0; i < file.registers.value.size(); i += 2) file.Set(i, kStackBase + 8 * i);
  file.Set(Registers::kRsp, kStackBase + 128);
  return file;
}

void Check(const UnwindTable& table, uint64_t svma, const StackCopy& stack, const RegisterFile& registers) {
  UnwindRule rule = table.Find(svma);
  auto precise = table.Interpret(nullptr, svma);
  if (!precise) {
    if (rule != UnwindRule{}) abort();
    return;
  }
  if (rule.kind != RuleKind::kNoCfi && rule != CompactRule(precise->cie, precise->row)) abort();
  uint64_t steps_left = 10000;
  auto step = ApplyRow(precise->cie, precise->row, registers, stack, /*needs_rbp=*/true, &steps_left);
  if (step && (step->caller.known >> stackd::kRegisterCount) != 0) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size_bytes) {
  static const StackCopy stack = SomeStack();
  static const RegisterFile registers = SomeRegisters();
  if (size_bytes < 2) return 0;
  CfiSection section;
  section.format = (bytes[0] & 1) != 0 ? CfiFormat::kDebugFrame : CfiFormat::kEhFrame;
  section.svma = kSectionSvma;
  section.inflated.assign(bytes + 1, bytes + size_bytes);
  std::vector<uint8_t> content = section.inflated;
  auto table = UnwindTable::Compile(std::move(section), content, kCode);

  std::vector<uint64_t> svmas = table->RowSvmas();
  if (svmas.size() > kMaxRowsTried) svmas.resize(kMaxRowsTried);
  for (uint64_t svma : svmas) {
    Check(*table, svma, stack, registers);
    Check(*table, svma - 1, stack, registers);
    Check(*table, svma + 1, stack, registers);
  }
  return 0;
}
