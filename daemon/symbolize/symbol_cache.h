// What the symbolizer knows, and what it is about to know: addresses of modules, with their names.
//
// Not thread-safe: the symbolizer locks once for a batch.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/modules/module.h"
#include "daemon/symbolize/symbolizer.h"

namespace stackd {

// One address.
struct SymbolSlot {
  std::shared_ptr<const SourceLocation> location;  // nullptr: nothing is known yet
  bool is_final = false;                           // else `location` has names only
  // Asked for, and not answered yet: from symbol tables, and from debug data.
  bool names_pending = false;
  bool lines_pending = false;
  uint32_t waiters = 0;
  int64_t retry_ns = 0;   // final only until then, because the reason may pass; 0: for good
  uint32_t last_use = 0;  // generation of the cache
};

// A module with this blame is not given to the worker any more: two crashes, or ten kills from outside while it was read.
inline constexpr int kMaxBlame = 10;
inline constexpr int kBlameForCrash = 5;
inline constexpr int kBlameForKill = 1;

struct SymbolModule {
  uint64_t id;
  std::string path;
  SymbolQuality quality = SymbolQuality::kNone;
  int names_blame = 0;
  int lines_blame = 0;
  std::string names_failure;  // why, if a worker died
  std::string lines_failure;
  std::unordered_map<uint64_t, SymbolSlot> slots;  // by svma
  // Addresses that wait for a worker, by phase, and the file, held open for them.
  std::array<std::deque<uint64_t>, 2> waiting;
  std::array<bool, 2> is_served = {};  // a worker has some of them now
  bool is_large = false;               // needs more memory than the second worker for debug data has
  std::shared_ptr<const Module> file;
  uint32_t users = 0;  // keep it in the cache
  uint32_t last_use = 0;
};

class SymbolCache {
 public:
  explicit SymbolCache(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  SymbolModule& GetModule(const Module& module);
  // nullptr if no address of it was ever asked for.
  const SymbolModule* FindModule(const Module& module) const;

  SymbolSlot& GetSlot(SymbolModule& module, uint64_t svma);
  void Set(SymbolSlot& slot, std::shared_ptr<const SourceLocation> location, bool is_final);

  // Forgets a module: its next address begins a new one, which a worker opens anew. What is pending or waited for goes on
  // in the old one.
  void Forget(const Module& module);

  // Forgets what was not used lately if the cache is larger than its limit; never what is pending or waited for. Slots and
  // modules that may be forgotten must not be referred to.
  void EnforceLimit();

  uint64_t size_bytes() const { return size_bytes_; }

 private:
  using Modules = std::map<FileIdentity, SymbolModule>;

  void EvictUsedBefore(uint32_t generation);
  void DropForgotten();

  const uint64_t limit_bytes_;
  uint64_t size_bytes_ = 0;
  uint64_t next_id_ = 1;
  uint32_t generation_ = 1;
  Modules modules_;
  // Forgotten modules that are still in use.
  std::vector<Modules::node_type> forgotten_;
};

}  // namespace stackd
