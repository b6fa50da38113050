// Names of code outside of files for one dump. They are read when the first is asked for: few processes have any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "daemon/symbolize/perf_map_file.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// One thread at a time.
class CodeNames {
 public:
  // `read` gives the perf map of the process, and is called once at most; nullptr: there is none.
  explicit CodeNames(std::function<std::shared_ptr<const PerfMapFile>()> read) : read_(std::move(read)) {}

  // The name of the code at `avma`; empty: not known.
  std::string NameOf(uint64_t avma) {
    if (read_) file_ = std::exchange(read_, nullptr)();
    return file_ == nullptr ? "" : file_->NameOf(avma);
  }

  // Says in the dump what of the perf map could not be read.
  void AddProblemTo(v1::Dump* dump) const {
    const std::string problem = file_ == nullptr ? "" : file_->Problem();
    if (!problem.empty()) dump->add_notes(problem);
  }

 private:
  std::function<std::shared_ptr<const PerfMapFile>()> read_;  // empty: it was called
  std::shared_ptr<const PerfMapFile> file_;
};

}  // namespace stackd
