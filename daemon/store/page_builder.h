// Where a list goes on: a position that only the same query of the same store accepts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stackd {

struct PageQuery {
  uint64_t store_id;
  std::string_view parent;  // or what else names the list
  std::string_view filter;
  int trigger = 0;
};

// The checksum finds mistakes and curiosity, not malice: a token gives nothing but a position in what its holder may read.
std::string EncodePageToken(const PageQuery& query, int64_t position);

// nullopt if the token was not made by EncodePageToken for an equal query.
std::optional<int64_t> DecodePageToken(const PageQuery& query, std::string_view token);

}  // namespace stackd
