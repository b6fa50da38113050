// The function that a call leads to in another module, by the name that the caller's file imports it under.
//
// Most images have a C library without its symbol table: of its own functions only those are known that others may call. A
// wait is mostly in one of the others, which the exported one has jumped to: libc.so.6+0x90d90 instead of sem_wait. But
// who called it has named it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "daemon/module/module.h"

namespace stackd {

// Thread-safe.
class ImportedCalls {
 public:
  // What the call before `return_svma` calls through the procedure linkage table or the global offset table of the module:
  // "sem_wait". Empty if it is another call, or none.
  std::string Name(const std::shared_ptr<const Module>& module, uint64_t return_svma);

 private:
  // Of one file: by the slot that the linker fills in, the offset of the name in .dynstr.
  struct Imports {
    std::unordered_map<uint64_t, uint64_t> names;
    uint64_t names_offset = 0;
    uint64_t names_bytes = 0;
  };

  std::shared_ptr<const Imports> ImportsOf(const Module& module);
  static std::shared_ptr<const Imports> Read(const Module& module);

  std::mutex mutex_;
  std::map<FileIdentity, std::shared_ptr<const Imports>> files_;
  std::list<FileIdentity> by_age_;  // of being read; the first is the oldest
};

}  // namespace stackd
