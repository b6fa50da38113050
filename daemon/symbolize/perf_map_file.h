// A perf map as its runtime goes on writing it.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/symbolize/perf_map.h"

namespace stackd {

class PerfMapFile {
 public:
  // Reads `file` anew, at most 64 MiB of it, unless it is as long as it was. Invalid: there is none now.
  void Update(const Fd& file);

  // See PerfMap.
  std::string NameOf(uint64_t avma) const { return names_.NameOf(avma); }

  // What of the file names no code, in one sentence; empty: all of it does.
  std::string Problem() const;

 private:
  PerfMap names_{""};
  int64_t size_bytes_ = 0;
};

}  // namespace stackd
