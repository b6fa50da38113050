// The dumps written last: the caller that makes a dump asks for its text next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>

#include "stackd/v1/stackd.pb.h"

namespace stackd {

// Thread safety: one thread at a time.
class RecentDumps {
 public:
  // Few, for the daemon's own footprint. Bytes are serialized ones.
  static constexpr size_t kMaxDumps = 4;
  static constexpr uint64_t kMaxBytes = 4 << 20;

  void Add(std::shared_ptr<const v1::Dump> dump, uint64_t size_bytes) {
    std::erase_if(dumps_, [&](const Kept& kept) { return kept.dump->name() == dump->name(); });
    dumps_.push_front({std::move(dump), size_bytes});
    uint64_t bytes = 0;
    size_t count = 0;
    while (count < std::min(dumps_.size(), kMaxDumps) && bytes + dumps_[count].size_bytes <= kMaxBytes) {
      bytes += dumps_[count++].size_bytes;
    }
    dumps_.resize(count);
  }

  // Returns nullptr if it is not kept.
  std::shared_ptr<const v1::Dump> Find(std::string_view name) const {
    const auto kept = std::ranges::find_if(dumps_, [&](const Kept& kept) { return kept.dump->name() == name; });
    return kept == dumps_.end() ? nullptr : kept->dump;
  }

 private:
  struct Kept {
    std::shared_ptr<const v1::Dump> dump;
    uint64_t size_bytes;
  };
  std::deque<Kept> dumps_;  // newest first
};

}  // namespace stackd
