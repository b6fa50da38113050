// Heartbeats of one process that were missed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "daemon/capture/waits.h"
#include "daemon/detect/watch/freeze_probe.h"
#include "daemon/detect/watch/watched_process.h"

namespace stackd {

class HeartbeatDetector {
 public:
  HeartbeatDetector(const WatchedProcess* process, FreezeProbe* freeze) : process_(*process), freeze_(*freeze) {}

  int64_t due_ns() const { return due_ns_; }
  // `may_ask` as in FreezeProbe.
  void Look(int64_t now_ns, const std::function<bool()>& may_ask);
  // Ends what was suspected: no rule asks for it any more.
  void EndSuspicions();

 private:
  struct Cell {
    Heartbeat heartbeat;
    int64_t age_ns = 0;  // time that was watched and had no beat
    bool is_excused = false;
    SharedSuspicion missed;
  };

  // Judgement of a heartbeat that did not come.
  enum class Verdict {
    kMissed,
    kExcused,   // its process cannot run: its time begins when it can
    kNotKnown,  // ask again with the next look
  };
  Verdict Judge(const Heartbeat& heartbeat, int64_t now_ns, const std::function<bool()>& may_ask);
  SharedSuspicion Suspect(const Cell& cell, int64_t now_ns) const;

  const WatchedProcess& process_;
  FreezeProbe& freeze_;
  int64_t due_ns_ = 0;
  int64_t looked_ns_ = 0;
  std::map<uint32_t, Cell> cells_;  // by Heartbeat::cell
};

}  // namespace stackd
