// What probes are told over plain HTTP: no HTTP/2, since every host may ask.
//
//     /livez          200 while the daemon works; 503 with its name while a loop that all need is stuck (base/loop_watch.h)
//     /readyz         200 until it begins to end
//     /process/NAME   503 while a process of that name is in a deadlock or misses a heartbeat; 200 if not, or if there is
//     none
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "daemon/detect/respond/process_health.h"
#include "daemon/http/pages.h"

namespace stackd {

// Thread-safe.
class Probes {
 public:
  // `process_health` may be nullptr: then no process is known.
  explicit Probes(const ProcessHealth* process_health) : process_health_(process_health) {}

  // From now on the daemon is not ready. It stays alive, and tells of processes: none must be killed because it goes.
  void Drain() { draining_ = true; }

  HttpAnswer Live() const;
  HttpAnswer Ready() const;
  HttpAnswer Process(const std::string& name);

  // Adds the three, with "/healthz" as another name of the first. This must outlive the server.
  void AddTo(HttpPages* pages);

 private:
  const ProcessHealth* const process_health_;
  std::atomic<bool> draining_ = false;
  std::mutex mutex_;
  // Health as it was a moment ago: a flood of probes costs one look.
  std::map<std::string, Health> health_;
  int64_t looked_ns_ = 0;
};

}  // namespace stackd
