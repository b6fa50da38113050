// The function that a call leads to in another module, by the name that the caller's file imports it under.
//
// Most images have a C library without its symbol table: only its exported functions have names. A wait is mostly in a
// local function, which the exported one has jumped to: libc.so.6+0x90d90 instead of sem_wait. But the caller's file names
// the exported one.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/modules/module.h"

namespace stackd {

// Thread-safe.
class ImportedCalls {
 public:
  // Names what the call before `return_svma` calls through the module's procedure linkage table (PLT) or global offset
  // table (GOT): "sem_wait". Empty if it is another call, or none.
  std::string Name(const std::shared_ptr<const Module>& module, uint64_t return_svma);

 private:
  // A slot that the dynamic linker fills in, and the name in .dynstr of what it fills in.
  struct Import {
    uint64_t slot_svma;
    uint32_t name_offset;
  };
  // Imports of one file, in the order of the slots.
  struct Imports {
    std::vector<Import> imports;
    uint64_t names_offset = 0;
    uint64_t names_bytes = 0;
  };

  std::shared_ptr<const Imports> ImportsOf(const Module& module);
  static std::shared_ptr<const Imports> Read(const Module& module);

  std::mutex mutex_;
  std::map<FileIdentity, std::shared_ptr<const Imports>> files_;
  size_t import_count_ = 0;         // of all files
  std::list<FileIdentity> by_age_;  // of being read; the first is the oldest
};

}  // namespace stackd
