// The folders of separate debug files, for whoever may open files: the daemon, not its worker.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/base/fd.h"

namespace stackd {

class DebugFolders {
 public:
  explicit DebugFolders(std::vector<std::string> dirs) : dirs_(std::move(dirs)) {}

  // An ELF file below one of the folders. Invalid for anything else, and for a path that does not stay below: the worker,
  // which asks, may be in the hands of a file that it read.
  Fd Open(size_t folder, const std::string& relative_path) const;

  size_t size() const { return dirs_.size(); }

 private:
  const std::vector<std::string> dirs_;
};

}  // namespace stackd
