// Rows of dumps in SQL, and nothing of what they are for. Crash ids, groups and the clock have rows of their own
// (crash_ids, crash_groups, retention_clock).
//
// Functions that return int give SQLITE_DONE or an error. Those that write are called in a transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/store/database.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct Amount {
  int64_t dumps = 0;
  int64_t bytes = 0;

  void operator+=(const Amount& more) { *this = {dumps + more.dumps, bytes + more.bytes}; }
  void operator-=(const Amount& less) { *this = {dumps - less.dumps, bytes - less.bytes}; }
};

// A dump as the limits see it.
struct DumpRow {
  int64_t id = 0;  // 0: there is none
  int64_t bytes = 0;
  int64_t raw_bytes = 0;  // of these
  bool is_crash = false;
  int64_t create_seconds = 0;
  std::string fingerprint;  // of a crash or hang that was counted
  bool is_finished = false;
};

int FindDump(Database* database, const std::string& name, DumpRow* row);
// Finds the oldest crash, or the oldest other dump. Both leave out the dump `kept_id`.
int FindOldest(Database* database, bool is_crash, int64_t kept_id, DumpRow* row);
// Finds the oldest dump of a group that is neither of its first nor of its last `kept_of_each_end`.
int FindBetween(Database* database, const std::string& fingerprint, int64_t kept_id, int64_t kept_of_each_end,
                DumpRow* row);

// A row to be written.
struct NewRow {
  const v1::Dump& dump;  // its header at least
  bool is_finished;
  std::string header;
  std::string data;         // compressed: the content of a finished dump, else the raw capture
  std::string fingerprint;  // of a crash or hang that is to be counted; else empty
};

// Writes over `old`, of which the raw capture stays. Gives `written` its id, size and kind.
int UpsertDump(Database* database, const NewRow& row, const DumpRow& old, DumpRow* written);
int DeleteDump(Database* database, int64_t id);
// Adds to how often a daemon began to finish the dump.
int AddAttempts(Database* database, const std::string& name, int64_t attempts);

// A dump as lists and readers see it.
struct StoredDump {
  int64_t id = 0;  // 0: there is none
  bool is_finished = false;
  std::string name;
  std::string header;
  int64_t attempts = 0;
};

// `content` is compressed, and that of a finished dump only.
int ReadDump(Database* database, const std::string& name, StoredDump* dump, std::string* content);
// `raw` is compressed, and empty where it is not there any more.
int ReadRaw(Database* database, const std::string& name, bool* found, std::string* raw);
// Reads the name of the newest dump; finished ones, and those up to `last_id_at_open`, before others.
int ReadNewest(Database* database, int64_t last_id_at_open, std::string* name);
// Reads the names of the unfinished dumps up to `last_id_at_open`.
int ReadUnfinished(Database* database, int64_t last_id_at_open, int64_t min_attempts, int64_t max_attempts,
                   std::vector<std::string>* names);
// Reads the names of a group's dumps: the first and the last `max_of_each_end`.
int ReadNamesOfGroup(Database* database, const std::string& fingerprint, int64_t max_of_each_end,
                     google::protobuf::RepeatedPtrField<std::string>* names);
int ReadAmounts(Database* database, Amount* crashes, Amount* others, int64_t* last_id);

// What a list is of: empty texts and TRIGGER_UNSPECIFIED are of all.
struct DumpSelection {
  const std::string& process;
  const std::string& part_of_display_name;
  v1::Dump::Trigger trigger;
};

// Calls `take` with the dumps below `before_id`, newest first, as long as it gives SQLITE_ROW; else gives what it gave.
int ListDumps(Database* database, const DumpSelection& selection, int64_t before_id,
              const std::function<int(const StoredDump&)>& take);

}  // namespace stackd
