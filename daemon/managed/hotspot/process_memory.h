// Memory of a process that runs on, page by page: what was read once stays as it was read, until it is forgotten.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "daemon/process/process_files.h"

namespace stackd::hotspot {

// Used by one thread. Reads fail once it holds kMaxPages: a hostile process cannot make it grow.
class ProcessMemory {
 public:
  explicit ProcessMemory(const ProcessFiles& files) : files_(files) {}

  // All of `bytes` or nothing.
  bool Read(uint64_t avma, std::span<uint8_t> bytes);

  template <typename T>
  std::optional<T> Value(uint64_t avma) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::array<uint8_t, sizeof(T)> bytes;
    if (!Read(avma, bytes)) return std::nullopt;
    return std::bit_cast<T>(bytes);
  }
  std::optional<uint64_t> Word(uint64_t avma) { return Value<uint64_t>(avma); }

  // Up to its NUL; nullopt if that does not come within `max_bytes`.
  std::optional<std::string> Text(uint64_t avma, size_t max_bytes);

  // What is read from now on is as it is then.
  void Forget() { pages_.clear(); }
  // Reads fail, as it holds too much.
  bool is_full() const { return pages_.size() >= kMaxPages; }

 private:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr size_t kMaxPages = 8192;
  using Page = std::array<uint8_t, kPageBytes>;

  const Page* PageAt(uint64_t page_avma);

  const ProcessFiles& files_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;  // nullptr: cannot be read
};

}  // namespace stackd::hotspot
