// Which crashes the store has taken, also those whose dump is gone. A crash that came from its process and comes again from
// the spool is the same crash.
#pragma once

#include <string>

#include "daemon/store/database.h"

namespace stackd {

// To be called in a transaction. Marks the crash as that of `dump`; `is_taken`: it is another dump's, and stays so.
// SQLITE_DONE or an error.
int ClaimCrash(Database* database, const std::string& crash_id, const std::string& dump, bool* is_taken);

}  // namespace stackd
