#include "daemon/modules/module_cache.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

namespace stackd {
namespace {

// As Module::Open has it. Unsigned: the owner of a file sets its time to anything.
FileIdentity IdentityOf(const struct stat& status) {
  auto to_ns = [](const timespec& time) {
    return static_cast<int64_t>(static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec));
  };
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size_bytes = static_cast<uint64_t>(status.st_size),
          .mtime_ns = to_ns(status.st_mtim),
          .ctime_ns = to_ns(status.st_ctim)};
}

}  // namespace

Result<std::shared_ptr<const Module>> ModuleCache::Get(Fd fd, const std::string& path) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return Error(Code::kInternal, std::string("fstat: ") + strerror(errno));
  {
    std::lock_guard lock(mutex_);
    if (auto it = modules_.find({IdentityOf(status), path}); it != modules_.end()) {
      if (auto module = it->second.lock()) return module;
    }
  }
  auto module = Module::Open(std::move(fd), path);
  if (!module) return module;
  std::lock_guard lock(mutex_);
  std::erase_if(modules_, [](const auto& entry) { return entry.second.expired(); });
  // What was read, should the file have changed since the question above.
  modules_[{(*module)->identity(), path}] = *module;
  return module;
}

std::shared_ptr<const Module> ModuleCache::Find(uint64_t device, uint64_t inode, const std::string& path) {
  std::lock_guard lock(mutex_);
  FileIdentity first{.device = device, .inode = inode, .size_bytes = 0, .mtime_ns = INT64_MIN, .ctime_ns = INT64_MIN};
  std::shared_ptr<const Module> newest;
  for (auto it = modules_.lower_bound({first, ""}); it != modules_.end(); ++it) {
    const auto& [identity, name] = it->first;
    if (identity.device != device || identity.inode != inode) break;
    if (name != path) continue;
    if (auto module = it->second.lock(); module && (!newest || module->identity().ctime_ns > newest->identity().ctime_ns)) {
      newest = std::move(module);
    }
  }
  return newest;
}

}  // namespace stackd
