#include "daemon/store/page_builder.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

namespace stackd {
namespace {

constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;
// A page stays well below the 4 MiB that clients accept.
constexpr size_t kMaxPageBytes = 3 << 20;
// A token is a position and a checksum.
constexpr size_t kDigitsPerNumber = 16;

std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, 16);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return value;
}

}  // namespace

uint64_t PageBuilder::Checksum(uint64_t position) const {
  std::string input(reinterpret_cast<const char*>(&position), sizeof(position));
  const uint64_t parent_bytes = query_.parent.size();
  input.append(reinterpret_cast<const char*>(&parent_bytes), sizeof(parent_bytes));
  input.append(reinterpret_cast<const char*>(&query_.trigger), sizeof(query_.trigger));
  input.append(query_.parent).append(query_.filter);
  return XXH3_64bits_withSeed(input.data(), input.size(), store_id_);
}

Result<void> PageBuilder::Begin(uint64_t store_id) {
  store_id_ = store_id;
  if (query_.page_size < 0) return Error(Code::kInvalidArgument, "page_size is negative", "BAD_PAGE_SIZE");
  max_count_ = query_.page_size == 0 ? kDefaultPageSize : std::min(query_.page_size, kMaxPageSize);
  const std::string_view token = query_.page_token;
  if (token.empty()) return {};
  const auto position = ParseHex(token.substr(0, kDigitsPerNumber));
  const auto checksum = ParseHex(token.substr(std::min(token.size(), kDigitsPerNumber)));
  if (token.size() != 2 * kDigitsPerNumber || !position || !checksum || *checksum != Checksum(*position)) {
    return Error(Code::kInvalidArgument, "page_token is not from an earlier page of the same query", "BAD_PAGE_TOKEN");
  }
  before_id_ = static_cast<int64_t>(*position);
  return {};
}

bool PageBuilder::Take(int64_t id, size_t size_bytes) {
  if (count_ > 0 && (count_ == max_count_ || bytes_ + size_bytes > kMaxPageBytes)) {
    char digits[2 * kDigitsPerNumber + 1];
    const uint64_t position = static_cast<uint64_t>(last_id_);
    snprintf(digits, sizeof(digits), "%016lx%016lx", position, Checksum(position));
    next_page_token_ = digits;
    return false;
  }
  ++count_;
  bytes_ += size_bytes;
  last_id_ = id;
  return true;
}

}  // namespace stackd
