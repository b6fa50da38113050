// Which heartbeats of one process were missed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "daemon/capture/waits.h"

namespace stackd {

class HeartbeatWatch {
 public:
  struct Missed {
    Heartbeat heartbeat;
    int64_t age_ns;
  };
  struct Events {
    std::vector<Missed> missed;
    std::vector<Heartbeat> resumed;  // missed earlier: they beat again, or are watched no more
    bool have_beaten = false;        // one at least, since the last look
  };

  // Judgement of a heartbeat that did not come.
  enum class Verdict {
    kMissed,
    kExcused,   // its process cannot run: its time begins when it can
    kNotKnown,  // ask again with the next look
  };

  // A look, `elapsed_ns` after the last one. `judge` is asked before one is taken for missed.
  Events Look(std::span<const Heartbeat> heartbeats, int64_t elapsed_ns,
              const std::function<Verdict(const Heartbeat&)>& judge);

  bool empty() const { return cells_.empty(); }

 private:
  struct Cell {
    Heartbeat heartbeat;
    int64_t age_ns = 0;  // time that was watched and had no beat
    bool is_missed = false;
    bool is_excused = false;
  };
  std::map<uint32_t, Cell> cells_;  // by Heartbeat::cell
};

}  // namespace stackd
