// Page tokens of ListProcesses. A token holds the place of the last process that was given, not a count. So processes that
// come and go between two pages shift nothing.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "daemon/base/result.h"

namespace stackd {

struct PagePlace {
  int64_t connect_wall_ns = 0;
  std::string id;

  // Order of the list: newest first.
  bool ComesAfter(const PagePlace& other) const {
    return std::tie(connect_wall_ns, id) < std::tie(other.connect_wall_ns, other.id);
  }
};

// Opaque to callers. `filter` is part of it: a token continues only the list it came from.
std::string EncodePageToken(const PagePlace& place, const std::string& filter);

// Fails with kInvalidArgument, BAD_PAGE_TOKEN.
Result<PagePlace> DecodePageToken(const std::string& token, const std::string& filter);

}  // namespace stackd
