// What one process has mapped, and the files of that.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/collect/agent_process.h"
#include "daemon/modules/address_map.h"
#include "daemon/modules/module_cache.h"
#include "daemon/process/lock_layout.h"
#include "daemon/process/module_loader.h"
#include "daemon/ring/ring.h"

namespace stackd {

class ProcessModules {
 public:
  // All must outlive it; `images` as in ModuleLoader, `executable` as the process names it.
  ProcessModules(const AgentProcess* process, Ring* ring, ModuleCache* cache, std::string executable, ByteBudget* images);

  // Any thread. nullptr: not known so far.
  std::shared_ptr<const AddressMap> Map() const;
  // How the C library of the process lays out its locks.
  RwlockLayout LockLayout() const;

  // The thread that has the turn (CaptureTurns).
  // Loads what is mapped now. Without an answer what was mapped before stays, and a note says so.
  void Load(int64_t deadline_ns);
  // The same, if the process has mapped something since the last call of this.
  void LoadIfChanged(int64_t deadline_ns);
  // What the last load missed, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  // Whether the process has not sent all files so far.
  bool awaits_files() const { return loader_.awaits_files(); }

 private:
  std::vector<std::optional<Fd>> OpenFiles(const std::vector<std::string>& paths, int64_t deadline_ns) const;
  Result<std::vector<uint8_t>> ReadImage(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns) const;

  const AgentProcess* const process_;
  Ring* const ring_;
  ModuleLoader loader_;
  std::vector<std::string> notes_;
  uint32_t generation_ = 0;  // of the map, as the process counts

  mutable std::mutex mutex_;  // guards map_
  std::shared_ptr<const AddressMap> map_;
};

}  // namespace stackd
