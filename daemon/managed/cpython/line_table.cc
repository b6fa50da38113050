#include "daemon/managed/cpython/line_table.h"

#include <optional>

namespace stackd {
namespace {

uint8_t ByteAt(std::string_view table, size_t i) { return static_cast<uint8_t>(table[i]); }
int8_t SignedAt(std::string_view table, size_t i) { return static_cast<int8_t>(table[i]); }

// To 3.9, co_lnotab: pairs of "so many bytes further" and "so many lines further", where both may be 0.
int64_t LineByLnotab(int64_t line, std::string_view table, int64_t position) {
  int64_t address = 0;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    address += ByteAt(table, i);
    if (address > position) break;
    line += SignedAt(table, i + 1);
  }
  return line;
}

// Reads co_linetable of 3.10: for each range of code its size in bytes and the difference from the line before. A
// difference of -128: the range has no line.
std::optional<int64_t> LineByRanges(int64_t line, std::string_view table, int64_t position) {
  constexpr int8_t kNoLine = -128;
  int64_t end = 0;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    end += ByteAt(table, i);
    const int8_t delta = SignedAt(table, i + 1);
    if (delta != kNoLine) line += delta;
    if (position < end) return delta == kNoLine ? std::nullopt : std::optional(line);
  }
  return std::nullopt;
}

// Numbers of 6 bits a byte, lowest first; bit 6 says that more follow.
class Numbers {
 public:
  explicit Numbers(std::string_view table) : table_(table) {}

  bool done() const { return at_ >= table_.size(); }
  uint8_t Byte() { return done() ? 0 : ByteAt(table_, at_++); }
  void Skip(size_t bytes) { at_ += bytes; }

  int64_t Unsigned() {
    int64_t value = 0;
    for (int shift = 0; shift < 36; shift += 6) {
      const uint8_t byte = Byte();
      value |= int64_t{byte & 0x3f} << shift;
      if ((byte & 0x40) == 0) break;
    }
    return value;
  }

  int64_t Signed() {
    const int64_t value = Unsigned();
    return (value & 1) != 0 ? -(value >> 1) : value >> 1;
  }

 private:
  std::string_view table_;
  size_t at_ = 0;
};

// Reads co_linetable from 3.11 on: one entry for each range of code. Its first byte has bit 7 set, its form, and its size
// in units of two bytes.
std::optional<int64_t> LineByLocations(int64_t line, std::string_view table, int64_t position) {
  enum Form : uint8_t { kOneLine0 = 10, kOneLine2 = 12, kNoColumns = 13, kLong = 14, kNone = 15 };
  Numbers numbers(table);
  int64_t end = 0;
  while (!numbers.done()) {
    const uint8_t head = numbers.Byte();
    const uint8_t form = head >> 3 & 0xf;
    end += 2 * ((head & 7) + 1);
    switch (form) {
      case kNone:
        break;
      case kLong:
        line += numbers.Signed();
        for (int i = 0; i < 3; ++i) numbers.Unsigned();
        break;
      case kNoColumns:
        line += numbers.Signed();
        break;
      default:
        if (form >= kOneLine0) line += form - kOneLine0;
        numbers.Skip(form >= kOneLine0 ? 2 : 1);
        break;
    }
    if (position < end) return form == kNone ? std::nullopt : std::optional(line);
  }
  return std::nullopt;
}

}  // namespace

int32_t LineOf(uint32_t version, uint32_t first_line, std::string_view table, int64_t position) {
  const int32_t without = first_line <= INT32_MAX ? static_cast<int32_t>(first_line) : 0;
  if (position < 0) return without;
  std::optional<int64_t> line;
  if (version <= 0x309) {
    line = LineByLnotab(first_line, table, position);
  } else if (version == 0x30a) {
    line = LineByRanges(first_line, table, position);
  } else {
    line = LineByLocations(first_line, table, position);
  }
  return line && *line > 0 && *line <= INT32_MAX ? static_cast<int32_t>(*line) : without;
}

}  // namespace stackd
