#include "daemon/managed/hotspot/methods.h"

#include <algorithm>

#include "daemon/base/text.h"
#include "daemon/managed/hotspot/compressed_ints.h"

namespace stackd::hotspot {
namespace {

constexpr size_t kMaxMethods = 1 << 16;
constexpr int kMaxLines = 1 << 16;
// Limit for a name: the VM allows 64 KiB, and each frame has a copy.
constexpr size_t kMaxSymbolBytes = 1024;

// Cuts the address off "Hang$$Lambda+0x00007f3c8c001c40" and "Hang$$Lambda$14/0x0000000800c03000".
void CutHiddenAddress(std::string* name) {
  for (const char* mark : {"+0x", "/0x"}) {
    const size_t at = name->rfind(mark);
    if (at != std::string::npos && name->find_first_not_of("0123456789abcdef", at + 3) == std::string::npos)
      name->resize(at);
  }
}

}  // namespace

std::optional<std::string> SymbolText(ProcessMemory* memory, const Layout& layout, uint64_t symbol_avma) {
  const auto length = memory->Value<uint16_t>(symbol_avma + layout.symbol_length);
  if (!length) return std::nullopt;
  std::string text(std::min<size_t>(*length, kMaxSymbolBytes), '\0');
  if (!memory->Read(symbol_avma + layout.symbol_body, std::span(reinterpret_cast<uint8_t*>(text.data()), text.size()))) {
    return std::nullopt;
  }
  return ToValidUtf8(text);
}

std::optional<std::string> ClassName(ProcessMemory* memory, const Layout& layout, uint64_t klass_avma) {
  const auto symbol = memory->Word(klass_avma + layout.klass_name);
  auto name = symbol ? SymbolText(memory, layout, *symbol) : std::nullopt;
  if (!name || name->empty()) return std::nullopt;
  CutHiddenAddress(&*name);
  std::ranges::replace(*name, '/', '.');
  return name;
}

std::optional<std::string> PoolSymbol(ProcessMemory* memory, const Layout& layout, uint64_t pool_avma, uint32_t index) {
  const auto length = memory->Value<int32_t>(pool_avma + layout.constants_length);
  if (!length || index == 0 || static_cast<int64_t>(index) >= *length) return std::nullopt;
  const auto symbol = memory->Word(pool_avma + layout.constants_bytes + 8ull * index);
  return symbol ? SymbolText(memory, layout, *symbol & ~uint64_t{1}) : std::nullopt;
}

const JavaMethod* Methods::Find(uint64_t method_avma) {
  auto found = methods_.find(method_avma);
  if (found == methods_.end()) {
    if (methods_.size() >= kMaxMethods) return nullptr;
    found = methods_.emplace(method_avma, Read(method_avma)).first;
  }
  return found->second ? &*found->second : nullptr;
}

std::optional<JavaMethod> Methods::Read(uint64_t method_avma) {
  if (method_avma == 0 || method_avma % 8 != 0) return std::nullopt;
  const auto const_method = memory_->Word(method_avma + layout_.method_const_method);
  if (!const_method || *const_method % 8 != 0) return std::nullopt;
  const auto pool = memory_->Word(*const_method + layout_.const_method_constants);
  const auto name_index = memory_->Value<uint16_t>(*const_method + layout_.const_method_name_index);
  const auto code_size = memory_->Value<uint16_t>(*const_method + layout_.const_method_code_size);
  const auto flags = memory_->Value<uint16_t>(*const_method + layout_.const_method_flags);
  if (!pool || !name_index || !code_size || !flags) return std::nullopt;
  const auto holder = memory_->Word(*pool + layout_.constants_holder);
  const auto class_name = holder ? ClassName(memory_, layout_, *holder) : std::nullopt;
  const auto name = PoolSymbol(memory_, layout_, *pool, *name_index);
  if (!class_name || !name) return std::nullopt;
  JavaMethod method;
  method.function = *class_name + "." + *name;
  const bool in_pool = layout_.constants_source_file != kNone;
  if (in_pool || layout_.klass_source_file != kNone) {
    const uint64_t index_avma = in_pool ? *pool + layout_.constants_source_file : *holder + layout_.klass_source_file;
    const auto file_index = memory_->Value<uint16_t>(index_avma);
    if (file_index) method.file = PoolSymbol(memory_, layout_, *pool, *file_index).value_or("");
  }
  method.code_avma = *const_method + layout_.const_method_bytes;
  method.code_bytes = *code_size;
  method.has_lines = (*flags & layout_.has_line_table_flag) != 0;
  return method;
}

// Reads the table after the bytecode: steps of bytecode index and line, small ones in one byte (compressedStream.hpp,
// CompressedLineNumberReadStream).
int32_t Methods::Line(const JavaMethod& method, int64_t bytecode_index) {
  if (!method.has_lines || bytecode_index < 0 || bytecode_index >= method.code_bytes) return 0;
  CompressedInts table(memory_, method.code_avma + method.code_bytes, layout_.release);
  int64_t index = 0, line = 0, best_index = -1, best_line = 0;
  for (int i = 0; i < kMaxLines; ++i) {
    const uint8_t step = table.Byte();
    if (!table.ok() || step == 0) break;
    if (step == 0xff) {
      index += table.Signed();
      line += table.Signed();
    } else {
      index += step >> 3;
      line += step & 7;
    }
    // Several lines may have one place; the VM takes the first of those at the very place, else the last.
    const bool is_there = index == bytecode_index && best_index != bytecode_index;
    if (is_there || (index < bytecode_index && index >= best_index)) {
      best_index = index;
      best_line = line;
    }
  }
  return best_line > 0 && best_line <= 0xffff ? static_cast<int32_t>(best_line) : 0;
}

}  // namespace stackd::hotspot
