// Whether the wall clock can be believed when it says how old a dump is.
//
// A clock that is wrong until the network corrects it, or that is set forward, must not delete what happened. So after a
// jump nothing is too old until the clock has gone on evenly for a day.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/store/database.h"
#include "daemon/store/dump_store.h"

namespace stackd {

// Thread safety: one thread at a time.
class RetentionClock {
 public:
  explicit RetentionClock(RetentionClocks clocks) : clocks_(clocks) {}

  // The time by which dumps are too old or not; nullopt: it cannot be believed now. A write body of the store: SQLITE_DONE
  // or an error. What it sees is kept in the database, so that a daemon that is started again knows. `written_id`: of the
  // dump that is just being written.
  int Look(Database* database, int64_t written_id, std::optional<int64_t>* now_seconds);

 private:
  struct Seen {
    int64_t wall_seconds;
    int64_t boot_seconds;
  };

  const RetentionClocks clocks_;
  std::optional<Seen> last_;
  int64_t trusted_from_seconds_ = 0;
};

}  // namespace stackd
