// Equal crashes and equal hangs over time: one row for each fingerprint, which counts them and outlives their dumps.
//
// The functions that write are called in a transaction, and give SQLITE_DONE or an error.
#pragma once

#include <cstdint>
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

// What a row says, without the names of the dumps.
v1::CrashGroup ParseGroup(const std::string& data);

// True if `part` is found in what people know a group by.
bool GroupHolds(const v1::CrashGroup& group, std::string_view part);

// The fingerprint in "stackGroups/{fingerprint}", or alone; kInvalidArgument BAD_NAME for anything else.
Result<std::string> FingerprintOfGroup(std::string_view name);

}  // namespace stackd
