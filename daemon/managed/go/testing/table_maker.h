// A table of functions as Go programs have it, for tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace stackd {

// Makes two functions: main.outer at 0x100 to 0x140, with main.inner inlined at 0x110 to 0x120. Up to 0x150 main.leaf, or
// under the name given.
class TableMaker {
 public:
  // Where the name of main.inner lies among the names.
  static constexpr uint32_t kInnerName = 12;

  explicit TableMaker(const std::string& leaf = "main.leaf") {
    names_ = std::string("\0main.outer\0main.inner\0", 23) + leaf + std::string(1, '\0');
    files_ = std::string("/src/a.go") + '\0' + "/src/b.go" + '\0';
    units_ = Words({0, 10});
    values_.push_back('\0');  // 0 means that there is no table
  }

  std::vector<uint8_t> Make() {
    const uint32_t stack = Table({{0, 0x10}, {24, 0x30}});
    const uint32_t file = Table({{0, 0x10}, {1, 0x10}, {0, 0x20}});
    const uint32_t line = Table({{7, 0x10}, {70, 0x10}, {8, 0x20}});
    const uint32_t inlined = Table({{-1, 0x10}, {3, 0x10}, {-1, 0x20}});
    const uint32_t leaf_stack = Table({{8, 0x10}});
    const std::string outer = Function(0x100, 1, stack, file, line, inlined, 0x40);
    const std::string leaf = Function(0x140, 23, leaf_stack, 0, 0, 0, std::nullopt);
    const uint32_t index_bytes = 2 * 8 + 4;
    std::string functions =
        Words({0x100, index_bytes + 4, 0x140, index_bytes + 4 + static_cast<uint32_t>(outer.size()), 0x150});
    functions += std::string(4, '\0') + outer + leaf;
    std::string header = Words({0xfffffff1}) + std::string("\0\0\1\x08", 4);
    uint64_t at = 72;
    const uint64_t names_at = at, units_at = names_at + names_.size(), files_at = units_at + units_.size(),
                   values_at = files_at + files_.size(), functions_at = values_at + values_.size();
    for (uint64_t word : {uint64_t{2}, uint64_t{2}, uint64_t{0}, names_at, units_at, files_at, values_at, functions_at}) {
      header.append(reinterpret_cast<const char*>(&word), 8);
    }
    const std::string all = header + names_ + units_ + files_ + values_ + functions;
    return {all.begin(), all.end()};
  }

 private:
  struct Part {
    int32_t value;
    uint32_t code_bytes;
  };

  static std::string Words(std::initializer_list<uint32_t> words) {
    std::string bytes;
    for (uint32_t word : words) bytes.append(reinterpret_cast<const char*>(&word), 4);
    return bytes;
  }

  void Varint(uint32_t value) {
    for (; value >= 0x80; value >>= 7) values_.push_back(static_cast<char>(value | 0x80));
    values_.push_back(static_cast<char>(value));
  }

  uint32_t Table(std::initializer_list<Part> parts) {
    const auto at = static_cast<uint32_t>(values_.size());
    int32_t value = -1;
    for (const Part& part : parts) {
      const int32_t difference = part.value - value;
      Varint(difference < 0 ? ~(static_cast<uint32_t>(difference) << 1) : static_cast<uint32_t>(difference) << 1);
      Varint(part.code_bytes);
      value = part.value;
    }
    values_.push_back('\0');
    return at;
  }

  static std::string Function(uint32_t entry, uint32_t name, uint32_t stack, uint32_t file, uint32_t line, uint32_t inlined,
                              std::optional<uint32_t> tree) {
    const std::string kinds("\5\1\0\4", 4);  // its number, top of a stack, padding, four kinds of function data
    return Words({entry, name, 0, 0, stack, file, line, 3, 0, 0}) + kinds + Words({0, 0, inlined}) +
           Words({~0u, ~0u, ~0u, tree.value_or(~0u)});
  }

  std::string names_, units_, files_, values_;
};

}  // namespace stackd
