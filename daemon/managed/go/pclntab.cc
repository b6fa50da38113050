#include "daemon/managed/go/pclntab.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// Source: runtime/symtab.go (pcHeader), runtime/runtime2.go (_func) and internal/abi/symtab.go of go1.21 to 1.26.
constexpr uint32_t kMagic = 0xfffffff1;
constexpr uint8_t kFlagTopFrame = 1, kFlagStackPointerWrite = 2;
constexpr uint32_t kPcDataInlineTreeIndex = 2, kFuncDataInlineTree = 3;
constexpr uint64_t kFixedFunctionBytes = 44;
constexpr uint64_t kHeaderBytes = 72;
// In the header.
constexpr uint64_t kCount = 8, kNames = 32, kUnits = 40, kFiles = 48, kValues = 56, kFunctions = 64;
// A pair for each instruction of the largest functions; more are not walked through.
constexpr int kMaxPairs = 1 << 18;
constexpr uint64_t kFunctionsBetweenLooksAtClock = 1 << 16;

template <typename T>
std::optional<T> LoadAt(std::span<const uint8_t> bytes, uint64_t position) {
  if (position > bytes.size() || bytes.size() - position < sizeof(T)) return std::nullopt;
  T value;
  memcpy(&value, bytes.data() + position, sizeof(T));
  return value;
}

}  // namespace

template <typename T>
std::optional<T> Pclntab::Load(uint64_t position) const {
  return LoadAt<T>(bytes_, position);
}

std::optional<Status> Pclntab::Check(std::span<const uint8_t> bytes) {
  if (bytes.size() < kHeaderBytes) return Status{Code::kInvalidArgument, "its function table is cut short"};
  if (*LoadAt<uint32_t>(bytes, 0) != kMagic || *LoadAt<uint8_t>(bytes, 6) != 1 || *LoadAt<uint8_t>(bytes, 7) != 8) {
    return Status{Code::kInvalidArgument, "its function table is of another format"};
  }
  for (uint64_t part : {kNames, kUnits, kFiles, kValues, kFunctions}) {
    if (*LoadAt<uint64_t>(bytes, part) > bytes.size()) {
      return Status{Code::kInvalidArgument, "a part of its function table lies outside"};
    }
  }
  // A pair for each function, then the end of the last.
  const uint64_t count = *LoadAt<uint64_t>(bytes, kCount);
  if (count == 0 || count > (bytes.size() - *LoadAt<uint64_t>(bytes, kFunctions)) / 8) {
    return Status{Code::kInvalidArgument, "it has more functions than fit into its function table"};
  }
  return std::nullopt;
}

Result<Pclntab> Pclntab::Parse(std::vector<uint8_t> bytes) {
  if (auto failed = Check(bytes)) return std::unexpected(std::move(*failed));
  Pclntab table;
  table.bytes_ = std::move(bytes);
  table.function_count_ = *table.Load<uint64_t>(kCount);
  table.names_ = *table.Load<uint64_t>(kNames);
  table.units_ = *table.Load<uint64_t>(kUnits);
  table.files_ = *table.Load<uint64_t>(kFiles);
  table.values_ = *table.Load<uint64_t>(kValues);
  table.functions_ = *table.Load<uint64_t>(kFunctions);
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

std::optional<GoFunction> Pclntab::FindFunctionByName(std::string_view name, int64_t deadline_ns) const {
  for (uint64_t i = 0; i < function_count_; ++i) {
    if (i % kFunctionsBetweenLooksAtClock == 0 && MonotonicNs() > deadline_ns) return std::nullopt;
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
  for (int pair = 0; pair < kMaxPairs; ++pair) {
    const auto zigzag = next();
    if (!zigzag || (*zigzag == 0 && pair > 0)) return std::nullopt;
    const auto advance = next();
    if (!advance || *advance == 0) return std::nullopt;
    value += (*zigzag & 1) != 0 ? ~(*zigzag >> 1) : *zigzag >> 1;
    code += *advance;
    if (code_offset < code) return static_cast<int32_t>(value);
  }
  return std::nullopt;
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
