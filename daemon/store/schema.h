// The tables of the store's file, and the way to them from those of earlier versions.
#pragma once

#include <sqlite3.h>

namespace stackd {

// "Stkd", for file(1).
inline constexpr int kApplicationId = 0x53746b64;

// Raised with any change of the tables; a file of a later version is refused, not guessed at.
inline constexpr int kSchemaVersion = 3;

// Makes the tables in an empty file (`version` 0), or brings those of an earlier version up to date: all or nothing.
// SQLITE_OK or an error.
int BringUpToDate(sqlite3* connection, int version);

}  // namespace stackd
