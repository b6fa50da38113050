// One page of a list: where it begins, when it is full, and the token of the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace stackd {

struct PageQuery {
  std::string_view parent;  // or what else names the list
  std::string_view filter;
  int trigger = 0;
  int32_t page_size = 0;  // 0: 50; at most 1000
  std::string_view page_token;
};

// Elements come with ids that fall.
class PageBuilder {
 public:
  explicit PageBuilder(const PageQuery& query) : query_(query) {}

  // Fails with kInvalidArgument BAD_PAGE_SIZE, and with BAD_PAGE_TOKEN if the token was not made for an equal query of this
  // store. Its checksum finds mistakes and curiosity, not malice: it gives a position in what its holder may read.
  Result<void> Begin(uint64_t store_id);

  // Only elements below belong to the page.
  int64_t before_id() const { return before_id_; }

  // Counts an element in. False: the page is full without it.
  bool Take(int64_t id, size_t size_bytes);

  // Is empty as long as all was taken.
  const std::string& next_page_token() const { return next_page_token_; }

 private:
  uint64_t Checksum(uint64_t position) const;

  const PageQuery query_;
  uint64_t store_id_ = 0;
  int64_t before_id_ = std::numeric_limits<int64_t>::max();
  int64_t last_id_ = 0;
  int max_count_ = 0;
  int count_ = 0;
  size_t bytes_ = 0;
  std::string next_page_token_;
};

}  // namespace stackd
