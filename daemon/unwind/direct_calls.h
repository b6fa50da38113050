// Which functions of a module are reached by calls that name them, and in no other way.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "daemon/modules/module.h"

namespace stackd {

// Looks in a module for what could lead to a function beside direct calls of it: jumps, computed addresses and pointers.
// Pointers are in data, relocations and tables of symbols. Where there is none, each activation of the function has a
// return address after a direct call of it.
//
// Not thread-safe. Remembers what it found in the last modules that it was asked of.
class DirectCalls {
 public:
  // To be called before AreOnlyWayTo() whenever the address map may have changed: a limit holds for each map's modules.
  void UseMap(uint64_t map_id);

  // Whether they are the only way to the function that begins at `svma`. False where there is too much to look at.
  bool AreOnlyWayTo(const Module& module, uint64_t svma);

 private:
  class Search;
  // A segment of code. Bit N: something but a direct call leads to begin_svma + N.
  struct Code {
    uint64_t begin_svma = 0;
    std::vector<bool> is_named;
  };
  struct ModuleCode {
    FileIdentity identity;
    std::vector<Code> segments;
  };

  const std::vector<Code>& CodeOf(const Module& module);

  // The last modules, the latest first.
  std::list<ModuleCode> modules_;
  uint64_t map_id_ = 0;
  uint64_t bytes_left_ = 0;
};

}  // namespace stackd
