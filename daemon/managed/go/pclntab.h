// The table that every Go binary carries for its own tracebacks, stripped or not: functions, how deep each frame is, lines,
// what was inlined where. Format of Go 1.20 and later.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/base/result.h"

namespace stackd {

struct GoFunction {
  uint32_t entry = 0;  // offset from the start of the text
  uint32_t end = 0;
  std::string_view name;
  uint8_t id = 0;
  bool is_top = false;       // nothing called it
  bool moves_stack = false;  // it sets the stack pointer in ways that no table tells
  uint32_t stack_table = 0;  // offsets into the table of values
  uint32_t file_table = 0;
  uint32_t line_table = 0;
  uint32_t inline_table = 0;            // 0: nothing is inlined
  std::optional<uint32_t> inline_tree;  // offset from the start of the function data
  uint32_t unit = 0;
};

// Immutable. What it hands out lives as long as it does. Offsets of code are from the start of the text.
class Pclntab {
 public:
  // Fails with kInvalidArgument for anything but a table of a known format.
  static Result<Pclntab> Parse(std::vector<uint8_t> bytes);
  // Returns what Parse would fail with, by the head of the table alone.
  static std::optional<Status> Check(std::span<const uint8_t> bytes);

  uint64_t size_bytes() const { return bytes_.size(); }
  uint64_t function_count() const { return function_count_; }
  std::optional<GoFunction> FunctionAt(uint64_t index) const;  // in the order of the code

  std::optional<GoFunction> FindFunction(uint32_t code_offset) const;
  // The first with that name; looks at all of them, up to the deadline.
  std::optional<GoFunction> FindFunctionByName(std::string_view name, int64_t deadline_ns) const;

  // Bytes from the stack pointer up to the return address at that instruction.
  std::optional<int32_t> FrameBytes(const GoFunction& function, uint32_t code_offset) const;
  std::string_view File(const GoFunction& function, uint32_t code_offset) const;  // empty: not known
  int32_t Line(const GoFunction& function, uint32_t code_offset) const;           // 0: not known
  // Index in the function's inline tree of the innermost function inlined there; -1: none.
  int32_t InlineIndex(const GoFunction& function, uint32_t code_offset) const;
  std::string_view NameAt(uint32_t name_offset) const;

 private:
  Pclntab() = default;
  template <typename T>
  std::optional<T> Load(uint64_t position) const;
  std::optional<int32_t> ValueAt(uint32_t table, const GoFunction& function, uint32_t code_offset) const;
  std::string_view StringAt(uint64_t position) const;

  std::vector<uint8_t> bytes_;
  uint64_t function_count_ = 0;
  uint64_t names_ = 0;
  uint64_t units_ = 0;
  uint64_t files_ = 0;
  uint64_t values_ = 0;
  uint64_t functions_ = 0;
};

}  // namespace stackd
