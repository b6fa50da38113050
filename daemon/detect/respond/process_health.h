// Which processes are not well, by display name.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/capture/capture.h"
#include "daemon/detect/watch/suspicion.h"

namespace stackd {

enum class Health : uint8_t { kUnknown, kWell, kIll };

// A spin and a standstill may be what the program is for, and a probe that fails has it killed.
bool MakesIll(const Suspicion& suspicion);

// Thread-safe.
class ProcessHealth {
 public:
  // `processes` gives those that are connected.
  explicit ProcessHealth(std::function<std::vector<ProcessDescription>()> processes);

  // Health of the connected processes with that display name: ill if one of them is. kUnknown: there is none.
  Health Of(const std::string& display_name) const;
  // Health of each display name that there is.
  std::map<std::string, Health> OfAll() const;
  // The process is ill until the suspicion is over.
  void SetIll(SharedSuspicion suspicion);

  // Keeps what is suspected until it is over, also what does not make a process ill.
  void Note(SharedSuspicion suspicion);
  // What was noted of a process and is not over, as it was noted.
  std::vector<SharedSuspicion> SuspicionsOf(const std::string& process_id) const;

 private:
  using ByProcessId = std::map<std::string, std::vector<SharedSuspicion>>;

  bool IsIll(const std::string& process_id) const;
  static void Add(SharedSuspicion suspicion, ByProcessId* suspicions);

  const std::function<std::vector<ProcessDescription>()> processes_;
  mutable std::mutex mutex_;
  ByProcessId ailments_;
  ByProcessId noted_;
};

}  // namespace stackd
