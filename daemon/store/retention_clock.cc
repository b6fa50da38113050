#include "daemon/store/retention_clock.h"

#include <algorithm>
#include <cstdlib>

namespace stackd {
namespace {

constexpr int64_t kDaySeconds = 86400;
// Drift within one life of the daemon, against a clock that is never set.
constexpr int64_t kMaxDriftSeconds = 3600;
// Drift between two lives, or between two dumps of a file that an earlier version wrote. A longer pause may be one, or a
// jump.
constexpr int64_t kMaxPauseSeconds = kDaySeconds;
constexpr int64_t kTrustedAfterSeconds = kDaySeconds;
// More often the row is not written.
constexpr int64_t kWriteEverySeconds = 60;

// Reads when the store was last written to, by the clock of then; nullopt if it was not.
int ReadSeen(Database* database, int64_t written_id, std::optional<int64_t>* seen_seconds, int64_t* trusted_from_seconds,
             bool* has_row) {
  {
    auto row = database->Run("SELECT seen_seconds, trusted_from_seconds FROM retention_clock");
    const int result = row.Step();
    *has_row = result == SQLITE_ROW;
    if (result == SQLITE_ROW) {
      *seen_seconds = row.Integer(0);
      *trusted_from_seconds = row.Integer(1);
    }
    if (result != SQLITE_DONE) return result == SQLITE_ROW ? SQLITE_DONE : result;
  }
  // A file of an earlier version tells by its newest dump.
  auto newest = database->Run("SELECT create_seconds FROM dumps WHERE id <> ? ORDER BY create_seconds DESC LIMIT 1");
  const int result = newest.Bind(1, written_id).Step();
  if (result == SQLITE_ROW) *seen_seconds = newest.Integer(0);
  return result == SQLITE_ROW ? SQLITE_DONE : result;
}

}  // namespace

int RetentionClock::Look(Database* database, int64_t written_id, std::optional<int64_t>* now_seconds) {
  const Seen now{clocks_.wall_ns() / kNsPerSecond, clocks_.boot_ns() / kNsPerSecond};
  std::optional<int64_t> seen_seconds;
  int64_t stored_trusted_from_seconds = 0;
  bool has_row = false;
  const int result = ReadSeen(database, written_id, &seen_seconds, &stored_trusted_from_seconds, &has_row);
  if (result != SQLITE_DONE) return result;
  trusted_from_seconds_ = std::max(trusted_from_seconds_, stored_trusted_from_seconds);
  const int64_t pause_seconds = now.wall_seconds - seen_seconds.value_or(now.wall_seconds);
  const bool jumped =
      last_
          ? std::abs((now.wall_seconds - last_->wall_seconds) - (now.boot_seconds - last_->boot_seconds)) > kMaxDriftSeconds
          : pause_seconds > kMaxPauseSeconds || pause_seconds < -kMaxDriftSeconds;
  last_ = now;
  // From a wrong future, a time to come would be one for ever.
  const int64_t trusted_again_seconds = now.wall_seconds + kTrustedAfterSeconds;
  trusted_from_seconds_ = jumped ? trusted_again_seconds : std::min(trusted_from_seconds_, trusted_again_seconds);
  const bool is_trusted = now.wall_seconds >= trusted_from_seconds_;
  *now_seconds = is_trusted ? std::optional(now.wall_seconds) : std::nullopt;
  if (has_row && !jumped && std::abs(pause_seconds) < kWriteEverySeconds) return SQLITE_DONE;
  return database->Run("INSERT OR REPLACE INTO retention_clock(id, seen_seconds, trusted_from_seconds) VALUES(1, ?, ?)")
      .Bind(1, now.wall_seconds)
      .Bind(2, trusted_from_seconds_)
      .Step();
}

}  // namespace stackd
