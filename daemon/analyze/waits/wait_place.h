// In what memory a lock lies, in words.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>

#include "daemon/analyze/code/stack_owner.h"
#include "daemon/analyze/waits/wait.h"
#include "daemon/capture/capture.h"

namespace stackd {

class WaitPlaces {
 public:
  // `capture` must outlive this; its map may be nullptr. Looks at `avmas` all at once.
  WaitPlaces(const Capture& capture, const DataSymbolLookup& data_symbols, const std::set<uint64_t>& avmas);

  // Says what is at one of these addresses: "heap", ".bss of bank: g_accounts", "stack of thread writer (tid 12)", "shared
  // memory", "anonymous memory". Empty if nothing is known to be there.
  const std::string& Of(uint64_t avma) const;

  // The thread whose stack `avma` is in, as far as that is known; 0: none.
  int32_t OwnerOfStack(uint64_t avma) const;

  // True if `avma` is in the data of a module: what lies there lies there as long as the process lives.
  bool IsStatic(uint64_t avma) const;

 private:
  // `address.module` is nullptr if it is in the data of no file.
  struct InModule {
    DataAddress address;
    bool is_bss = false;
  };

  InModule FindModule(uint64_t avma) const;
  std::string OutsideOfModules(uint64_t avma) const;

  const Capture& capture_;
  StackOwners stack_owners_;
  std::unordered_map<uint64_t, std::string> places_;
};

}  // namespace stackd
