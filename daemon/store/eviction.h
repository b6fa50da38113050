// Which dump goes where the store is over its limits. Pure: knows no database.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/store/crash_groups.h"
#include "daemon/store/dump_rows.h"
#include "daemon/store/dump_store.h"

namespace stackd {

// What the store holds, and what it dropped since start.
struct Totals {
  Amount crashes;
  Amount others;
  GroupTotals groups;
  Evictions evicted;
  int64_t dropped = 0;

  Amount& Of(bool is_crash) { return is_crash ? crashes : others; }
  int64_t dumps() const { return crashes.dumps + others.dumps; }
  int64_t bytes() const { return crashes.bytes + others.bytes + groups.bytes; }
};

struct Victim {
  const DumpRow* dump = nullptr;  // nullptr: the limits are kept
  int64_t Evictions::* limit = nullptr;
};

// Chooses between the oldest crash and the oldest other dump (id 0: there is none). Without `now_seconds` none is too old.
Victim ChooseVictim(const DumpStoreOptions& limits, const Totals& totals, std::optional<int64_t> now_seconds,
                    const DumpRow& crash, const DumpRow& other);

}  // namespace stackd
