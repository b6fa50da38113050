// The folders of separate debug files. The daemon opens them: its worker may open no file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "daemon/base/fd.h"

namespace stackd {

class DebugFolders {
 public:
  explicit DebugFolders(std::vector<std::string> dirs) : dirs_(std::move(dirs)) {}

  // Opens an ELF file below one of the folders. Invalid for anything else, and for a path that does not stay below: a file
  // may have taken over the worker that asks.
  Fd Open(size_t folder, const std::string& relative_path) const;

  size_t size() const { return dirs_.size(); }

 private:
  const std::vector<std::string> dirs_;
};

}  // namespace stackd
