// Modules of all processes, so that a library is parsed once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/modules/module.h"

namespace stackd {

// Thread-safe. Knows a module as long as a user of it holds it.
class ModuleCache {
 public:
  // The module for a file; `fd` is taken.
  Result<std::shared_ptr<const Module>> Get(Fd fd, const std::string& path);

  // The module for the file with these numbers, as the kernel shows them in maps; nullptr if it is not held. A file that a
  // process passed under other numbers is not found.
  std::shared_ptr<const Module> Find(uint64_t device, uint64_t inode, const std::string& path);

 private:
  // With the path, because a module shows it: a process that links a library under another name would rename it in the
  // dumps of all.
  using Key = std::pair<FileIdentity, std::string>;

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Module>> modules_;
};

}  // namespace stackd
