// Equal crashes and equal hangs over time: one row for each fingerprint, which counts them and outlives their dumps.
//
// Functions that return int give SQLITE_DONE or an error. Those that write are called in a transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "daemon/base/result.h"
#include "daemon/store/database.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct GroupTotals {
  int64_t groups = 0;
  int64_t bytes = 0;
};

// The fingerprint of its crash or hang; empty if it is neither, or is not finished.
const std::string& FingerprintOfEvent(const v1::Dump& dump);

// Counts `dump`, which has a fingerprint, and whose row is `dump_id`.
int CountEvent(Database* database, const v1::Dump& dump, int64_t dump_id, GroupTotals* totals);

// Takes one that was counted, a dump of the process `display_name`, out of its group.
int UncountEvent(Database* database, const std::string& fingerprint, const std::string& display_name, GroupTotals* totals);

// Removes the groups that were not seen for longest, until the others hold at most `max_bytes`; a bounded number a call.
int EvictGroups(Database* database, int64_t max_bytes, GroupTotals* totals);

int ReadGroupTotals(Database* database, GroupTotals* totals);

// Reads the group of the fingerprint; of the newest crash if that is empty. `group` is without the names of the dumps.
int FindGroup(Database* database, const std::string& fingerprint, v1::CrashGroup* group, bool* found);

// Calls `take` with the groups below `before_id`, newest first, as long as it gives SQLITE_ROW; else gives what it gave.
int ListGroups(Database* database, int64_t before_id, const std::function<int(int64_t id, v1::CrashGroup)>& take);

// True if `part` is found in what people know a group by.
bool GroupHolds(const v1::CrashGroup& group, std::string_view part);

// The fingerprint in "stackGroups/{fingerprint}", or alone; kInvalidArgument BAD_NAME for anything else.
Result<std::string> FingerprintOfGroup(std::string_view name);

}  // namespace stackd
