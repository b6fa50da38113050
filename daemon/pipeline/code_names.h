// Names of code outside of files for one dump. They are looked for when the first is asked for: few processes have any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/symbolize/perf_map_file.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// One thread at a time.
class CodeNames {
 public:
  // `file` must outlive it. `open` gives the perf map of the process; invalid: there is none.
  CodeNames(PerfMapFile* file, std::function<Fd()> open) : file_(file), open_(std::move(open)) {}

  // The name of the code at `avma`; empty: not known.
  std::string NameOf(uint64_t avma) {
    if (!has_looked_) file_->Update(open_());
    has_looked_ = true;
    return file_->NameOf(avma);
  }

  // Says in the dump what of the perf map could not be read.
  void AddProblemTo(v1::Dump* dump) const {
    const std::string problem = has_looked_ ? file_->Problem() : "";
    if (!problem.empty()) dump->add_notes(problem);
  }

 private:
  PerfMapFile* const file_;
  const std::function<Fd()> open_;
  bool has_looked_ = false;
};

}  // namespace stackd
