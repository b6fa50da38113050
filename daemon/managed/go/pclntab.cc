#include "daemon/managed/go/pclntab.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace stackd {
namespace {

// Source: runtime/symtab.go (pcHeader), runtime/runtime2.go (_func) and internal/abi/symtab.go of go1.21 to 1.26.
constexpr uint32_t kMagic = 0xfffffff1;
constexpr uint8_t kFlagTopFrame = 1, kFlagStackPointerWrite = 2;
constexpr uint32_t kPcDataInlineTreeIndex = 2, kFuncDataInlineTree = 3;
constexpr uint64_t kFixedFunctionBytes = 44;
constexpr uint64_t kHeaderBytes = 72;

}  // namespace

template <typename T>
std::optional<T> Pclntab::Load(uint64_t position) const {
  if (position > bytes_.size() || bytes_.size() - position < sizeof(T)) return std::nullopt;
  T value;
  memcpy(&value, bytes_.data() + position, sizeof(T));
  return value;
}

Result<Pclntab> Pclntab::Parse(std::vector<uint8_t> bytes) {
  Pclntab table;
  table.bytes_ = std::move(bytes);
  if (table.bytes_.size() < kHeaderBytes) return Error(Code::kInvalidArgument, "its function table is cut short");
  if (*table.Load<uint32_t>(0) != kMagic || *table.Load<uint8_t>(6) != 1 || *table.Load<uint8_t>(7) != 8) {
    return Error(Code::kInvalidArgument, "its function table is of another format");
  }
  table.function_count_ = *table.Load<uint64_t>(8);
  table.names_ = *table.Load<uint64_t>(32);
  table.units_ = *table.Load<uint64_t>(40);
  table.files_ = *table.Load<uint64_t>(48);
  table.values_ = *table.Load<uint64_t>(56);
  table.functions_ = *table.Load<uint64_t>(64);
  const uint64_t size = table.bytes_.size();
  for (uint64_t start : {table.names_, table.units_, table.files_, table.values_, table.functions_}) {
    if (start > size) return Error(Code::kInvalidArgument, "a part of its function table lies outside");
  }
  // A pair for each function, then the end of the last.
  if (table.function_count_ == 0 || table.function_count_ > (size - table.functions_) / 8) {
    return Error(Code::kInvalidArgument, "it has more functions than fit into its function table");
  }
  return table;
}

std::optional<GoFunction> Pclntab::FindFunction(uint32_t code_offset) const {
  uint64_t low = 0, high = function_count_;  // the last that begins at or below it is in [low, high)
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    const auto entry = Load<uint32_t>(functions_ + 8 * middle);
    if (!entry) return std::nullopt;
    (*entry <= code_offset ? low : high) = middle;
  }
  std::optional<GoFunction> function = FunctionAt(low);
  if (!function || code_offset < function->entry || code_offset >= function->end) return std::nullopt;
  return function;
}

std::optional<GoFunction> Pclntab::FindFunctionByName(std::string_view name) const {
  for (uint64_t i = 0; i < function_count_; ++i) {
    std::optional<GoFunction> function = FunctionAt(i);
    if (function && function->name == name) return function;
  }
  return std::nullopt;
}

std::optional<GoFunction> Pclntab::FunctionAt(uint64_t index) const {
  const auto entry = Load<uint32_t>(functions_ + 8 * index);
  const auto record_offset = Load<uint32_t>(functions_ + 8 * index + 4);
  const auto end = Load<uint32_t>(functions_ + 8 * index + 8);
  if (!entry || !record_offset || !end) return std::nullopt;
  const uint64_t record = functions_ + *record_offset;
  if (record > bytes_.size() || bytes_.size() - record < kFixedFunctionBytes) return std::nullopt;
  GoFunction function;
  function.entry = *entry;
  function.end = *end;
  function.name = NameAt(*Load<uint32_t>(record + 4));
  function.stack_table = *Load<uint32_t>(record + 16);
  function.file_table = *Load<uint32_t>(record + 20);
  function.line_table = *Load<uint32_t>(record + 24);
  const uint32_t pc_data_count = *Load<uint32_t>(record + 28);
  function.unit = *Load<uint32_t>(record + 32);
  function.id = *Load<uint8_t>(record + 40);
  const uint8_t flags = *Load<uint8_t>(record + 41);
  function.is_top = (flags & kFlagTopFrame) != 0;
  function.moves_stack = (flags & kFlagStackPointerWrite) != 0;
  const uint8_t function_data_count = *Load<uint8_t>(record + 43);
  const uint64_t pc_data = record + kFixedFunctionBytes;
  const uint64_t function_data = pc_data + 4ull * pc_data_count;
  if (pc_data_count > kPcDataInlineTreeIndex && function_data_count > kFuncDataInlineTree) {
    const auto tree = Load<uint32_t>(function_data + 4 * kFuncDataInlineTree);
    if (tree && *tree != ~uint32_t{0}) {
      function.inline_table = Load<uint32_t>(pc_data + 4 * kPcDataInlineTreeIndex).value_or(0);
      function.inline_tree = tree;
    }
  }
  if (function.name.empty()) return std::nullopt;
  return function;
}

// A table is a list of pairs, value and code both as differences to the pair before, up to a difference in value of 0.
std::optional<int32_t> Pclntab::ValueAt(uint32_t table, const GoFunction& function, uint32_t code_offset) const {
  if (table == 0) return std::nullopt;
  uint64_t position = values_ + table;
  auto next = [&]() -> std::optional<uint32_t> {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
      const auto byte = Load<uint8_t>(position++);
      if (!byte) return std::nullopt;
      value |= static_cast<uint32_t>(*byte & 0x7f) << shift;
      if ((*byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  };
  uint32_t value = ~uint32_t{0};
  uint64_t code = function.entry;
  for (bool is_first = true;; is_first = false) {
    const auto zigzag = next();
    if (!zigzag || (*zigzag == 0 && !is_first)) return std::nullopt;
    const auto advance = next();
    if (!advance || *advance == 0) return std::nullopt;
    value += (*zigzag & 1) != 0 ? ~(*zigzag >> 1) : *zigzag >> 1;
    code += *advance;
    if (code_offset < code) return static_cast<int32_t>(value);
  }
}

std::optional<int32_t> Pclntab::FrameBytes(const GoFunction& function, uint32_t code_offset) const {
  return ValueAt(function.stack_table, function, code_offset);
}

std::string_view Pclntab::File(const GoFunction& function, uint32_t code_offset) const {
  const auto number = ValueAt(function.file_table, function, code_offset);
  if (!number || *number < 0) return {};
  const auto offset = Load<uint32_t>(units_ + 4 * (uint64_t{function.unit} + static_cast<uint32_t>(*number)));
  if (!offset || *offset == ~uint32_t{0}) return {};
  return StringAt(files_ + *offset);
}

int32_t Pclntab::Line(const GoFunction& function, uint32_t code_offset) const {
  const int32_t line = ValueAt(function.line_table, function, code_offset).value_or(0);
  return line < 0 ? 0 : line;
}

int32_t Pclntab::InlineIndex(const GoFunction& function, uint32_t code_offset) const {
  return ValueAt(function.inline_table, function, code_offset).value_or(-1);
}

std::string_view Pclntab::NameAt(uint32_t name_offset) const { return StringAt(names_ + name_offset); }

std::string_view Pclntab::StringAt(uint64_t position) const {
  constexpr size_t kMaxBytes = 4096;
  if (position >= bytes_.size()) return {};
  const char* start = reinterpret_cast<const char*>(bytes_.data() + position);
  return {start, strnlen(start, std::min<size_t>(kMaxBytes, bytes_.size() - position))};
}

}  // namespace stackd
