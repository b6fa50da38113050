// Dumps on disk: SQLite in WAL mode. A dump is written twice: its raw capture first, so that a daemon that dies next has
// lost nothing; then the finished Dump.
//
// Equal crashes (those with one fingerprint) are a group: all are counted, and the dumps of the first and the last are
// kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/result.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct RetentionClocks {
  int64_t (*wall_ns)() = WallNs;
  int64_t (*boot_ns)() = [] { return ClockNs(CLOCK_BOOTTIME); };  // goes on while the machine sleeps
};

struct DumpStoreOptions {
  std::string file;                 // ":memory:": kept until the daemon ends
  int64_t max_bytes = 256ll << 20;  // the oldest dumps go first
  int64_t max_dumps = 10'000;
  int64_t max_age_seconds = 30ll * 86400;
  int64_t crashes_per_group = 5;  // so many of the first and so many of the last keep their dumps; at least 1
  RetentionClocks clocks = {};    // by which dumps are too old
};

struct DumpPage {
  std::vector<v1::Dump> dumps;  // view BASIC, newest first
  std::string next_page_token;  // empty at the end
};

struct DumpQuery {
  std::string parent;      // "processes/…"; empty or "processes/-": all
  std::string filter;      // part of the process's display name; empty: all
  int32_t page_size = 0;   // 0: 50; at most 1000; negative: kInvalidArgument BAD_PAGE_SIZE
  std::string page_token;  // from an earlier page of the same query; else kInvalidArgument BAD_PAGE_TOKEN
  v1::Dump::Trigger trigger = v1::Dump::TRIGGER_UNSPECIFIED;  // unspecified: any
};

struct GroupPage {
  std::vector<v1::CrashGroup> groups;  // without fingerprint_frames, that with the newest first crash first
  std::string next_page_token;         // empty at the end
};

struct GroupQuery {
  v1::CrashGroup::Kind kind = v1::CrashGroup::CRASH;
  std::string filter;  // part of the explanation, the top function or a process's name; empty: all
  int32_t page_size = 0;
  std::string page_token;  // both as in DumpQuery
};

// Dumps that went for each limit, since start.
struct Evictions {
  int64_t age = 0;
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t total() const { return age + count + bytes; }
};

// A finished dump, ready to be written.
struct PackedDump {
  std::shared_ptr<const v1::Dump> dump;
  std::string header;      // serialized: what lists show
  std::string content;     // serialized and compressed: all of it
  uint64_t content_bytes;  // before compression
};

// Thread-safe.
class DumpStore {
 public:
  // Makes the file if there is none. A corrupt file is moved aside ("….corrupt-1", …) and a new one begun; that is said in
  // Problems(). Dumps whose capture is stored but which were never finished (the daemon died) are there, PARTIAL, with a
  // note. Fails, with one sentence that says what to change, if no file can be made there at all. It fails so, too, if the
  // file is that of a newer stackd or of another program: such a file is left as it is.
  static Result<std::unique_ptr<DumpStore>> Open(const DumpStoreOptions& options);
  ~DumpStore();

  // Stores the serialized capture `raw` (raw_capture.h). `header` holds name, process, trigger, create_time, thread_counts.
  // Like Put, refuses a crash whose id (`header.crash.id`) was stored before, as another dump, also when that is gone:
  // kAlreadyExists with reason CRASH_ALREADY_STORED.
  Result<void> PutRaw(const v1::Dump& header, const std::string& raw);
  // Replaces what PutRaw wrote of the dump, but keeps `raw`. Both enforce the limits, a bounded part of the work per call.
  // A full or read-only disk is an error (kUnavailable, STORE_UNAVAILABLE); the store works again once it has space. A
  // crash with a fingerprint is counted in its group; dumps between its first and its last ones are dropped.
  Result<void> Put(const v1::Dump& dump);
  // The same in two steps: Pack does the work that needs no store. `dump` is not changed any more after that; the last few
  // are kept in memory, as they are likely to be asked for at once.
  static Result<PackedDump> Pack(std::shared_ptr<const v1::Dump> dump);
  Result<void> Put(PackedDump packed);
  // As Put, for a dump that is there: kNotFound if it is not, so that none comes back. A crash whose fingerprint has
  // changed moves to its new group.
  Result<void> Replace(PackedDump packed);

  // kNotFound with reason DUMP_NOT_FOUND; kInvalidArgument BAD_NAME for what cannot be a name.
  Result<v1::Dump> Get(const std::string& name) const;
  // As Get, but what is still in memory is not read again.
  Result<std::shared_ptr<const v1::Dump>> Find(const std::string& name) const;
  // Also kFailedPrecondition RAW_CAPTURE_GONE.
  Result<std::string> GetRaw(const std::string& name) const;
  // The name of the newest dump, of finished ones if there are any; kNotFound if there is none.
  Result<std::string> Newest() const;
  Result<DumpPage> List(const DumpQuery& query) const;
  // Names of the dumps that daemons before this one left unfinished with fewer attempts than kCarefulAttempts. Those with
  // so many are suspect, for they may have ended the daemon: they get one more attempt, when it has run for a while.
  static constexpr int64_t kCarefulAttempts = 2;
  std::vector<std::string> Unfinished() const;
  std::vector<std::string> UnfinishedAndSuspect() const;
  // Notes on disk that an attempt to finish a dump begins, since it may end the daemon. The note stays until the dump is
  // finished or the attempt has ended without that.
  Result<void> NoteAttempt(const std::string& name);
  void EndAttempt(const std::string& name);
  // Ends all attempts, and notes no more: the daemon is told to end, and may have no time for them.
  void EndAttempts();
  // Names of the unfinished dumps that kMaxAttempts attempts did not finish: they are not tried again by themselves.
  static constexpr int64_t kMaxAttempts = 3;
  std::vector<std::string> SetAside() const;
  Result<void> Delete(const std::string& name);

  Result<GroupPage> ListGroups(const GroupQuery& query) const;
  // "stackGroups/{fingerprint}" or the fingerprint; empty: the group of the newest crash. kNotFound with reason
  // GROUP_NOT_FOUND; kInvalidArgument BAD_NAME.
  Result<v1::CrashGroup> GetGroup(const std::string& name) const;

  int64_t dump_count() const;
  int64_t bytes() const;
  int64_t max_bytes() const;
  int64_t evicted_count() const;
  Evictions evictions() const;
  // Crashes that were counted and whose dump was dropped, because their group has enough.
  int64_t dropped_count() const;
  // What an operator must know: "store.db was corrupt and was moved to store.db.corrupt-1".
  std::vector<std::string> Problems() const;

 private:
  struct State;
  explicit DumpStore(std::unique_ptr<State> state);
  Result<void> PutFinished(PackedDump packed, bool only_if_there);
  std::vector<std::string> LeftByOthers(int64_t min_attempts, int64_t max_attempts) const;
  std::unique_ptr<State> state_;
};

}  // namespace stackd
