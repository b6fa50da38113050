// Modules of all processes, so that a library is parsed once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/module/module.h"

namespace stackd {

// Thread-safe. Holds a module as long as somebody else does.
class ModuleCache {
 public:
  // The module for a file; `fd` is taken.
  Result<std::shared_ptr<const Module>> Get(Fd fd, const std::string& path);

 private:
  // With the path, because a module shows it: a process that links a library under another name would rename it in the
  // dumps of all.
  using Key = std::pair<FileIdentity, std::string>;

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Module>> modules_;
};

}  // namespace stackd
