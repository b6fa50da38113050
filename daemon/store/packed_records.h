// Records of one size, end to end in a field of a message: written as they are in memory, checked when read.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stackd {

template <typename T>
void AppendRecords(std::span<const T> records, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(records.data()), records.size_bytes());
}

template <typename T>
void AppendRecord(const T& record, std::string* bytes) {
  AppendRecords(std::span(&record, 1), bytes);
}

// Takes packed records from the front of a table that may be shorter than they claim.
class PackedRecords {
 public:
  explicit PackedRecords(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }

  std::optional<std::string_view> TakeBytes(uint64_t size_bytes) {
    if (size_bytes > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, size_bytes);
    rest_.remove_prefix(size_bytes);
    return taken;
  }

  template <typename T>
  std::optional<T> Take() {
    const auto bytes = TakeBytes(sizeof(T));
    if (!bytes) return std::nullopt;
    T value;
    std::memcpy(&value, bytes->data(), sizeof(T));
    return value;
  }

  std::optional<std::vector<uint64_t>> TakeWords(uint64_t count) {
    // `count` has 32 bits or fewer, so the product does not overflow.
    const auto bytes = TakeBytes(count * sizeof(uint64_t));
    if (!bytes) return std::nullopt;
    std::vector<uint64_t> words(count);
    if (count > 0) std::memcpy(words.data(), bytes->data(), bytes->size());
    return words;
  }

 private:
  std::string_view rest_;
};

}  // namespace stackd
