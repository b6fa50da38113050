// A perf map as its runtime goes on writing it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/byte_budget.h"
#include "daemon/base/fd.h"
#include "daemon/symbolize/perf_map.h"

namespace stackd {

struct PerfMapLimits {
  int64_t max_bytes = 64 << 20;
  size_t max_symbols = PerfMap::kMaxSymbols;
  ByteBudget* memory = nullptr;  // which its names are part of; nullptr: there is no other limit
};

class PerfMapFile {
 public:
  explicit PerfMapFile(const PerfMapLimits& limits = {}) : limits_(limits) {}

  // Reads `file` anew, unless it is as long as it was. Invalid: there is none now.
  void Update(const Fd& file);

  // Notes that the dump did not wait until it was read.
  void SetLate() { is_late_ = true; }

  // See PerfMap.
  std::string NameOf(uint64_t avma) const { return names_ == nullptr ? "" : names_->NameOf(avma); }

  // What of the file names no code, in one sentence; empty: all of it does.
  std::string Problem() const;

 private:
  // False: there is no memory for it.
  bool Read(const Fd& file);

  const PerfMapLimits limits_;
  std::unique_ptr<const PerfMap> names_;  // nullptr: none
  HeldBytes held_;
  int64_t size_bytes_ = 0;
  bool has_room_ = true;
  bool is_late_ = false;
};

}  // namespace stackd
