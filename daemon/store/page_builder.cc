#include "daemon/store/page_builder.h"

#include <xxhash.h>

#include <charconv>
#include <cstdio>

namespace stackd {
namespace {

constexpr size_t kDigitsPerNumber = 16;

uint64_t Checksum(const PageQuery& query, uint64_t position) {
  std::string input(reinterpret_cast<const char*>(&position), sizeof(position));
  const uint64_t parent_bytes = query.parent.size();
  input.append(reinterpret_cast<const char*>(&parent_bytes), sizeof(parent_bytes));
  input.append(reinterpret_cast<const char*>(&query.trigger), sizeof(query.trigger));
  input.append(query.parent).append(query.filter);
  return XXH3_64bits_withSeed(input.data(), input.size(), query.store_id);
}

std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, 16);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return value;
}

}  // namespace

std::string EncodePageToken(const PageQuery& query, int64_t position) {
  char digits[2 * kDigitsPerNumber + 1];
  const uint64_t number = static_cast<uint64_t>(position);
  snprintf(digits, sizeof(digits), "%016lx%016lx", number, Checksum(query, number));
  return digits;
}

std::optional<int64_t> DecodePageToken(const PageQuery& query, std::string_view token) {
  if (token.size() != 2 * kDigitsPerNumber) return std::nullopt;
  const auto position = ParseHex(token.substr(0, kDigitsPerNumber));
  const auto checksum = ParseHex(token.substr(kDigitsPerNumber));
  if (!position || !checksum || *checksum != Checksum(query, *position)) return std::nullopt;
  return static_cast<int64_t>(*position);
}

}  // namespace stackd
