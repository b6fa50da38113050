#include "daemon/store/schema.h"

#include "stackd/v1/stackd.pb.h"

namespace stackd {
namespace {

// Contents and raw captures have tables of their own, so that lists read small rows, and a finished dump does not rewrite
// its raw capture. AUTOINCREMENT: the id of a deleted dump does not come back, so page tokens stay true.
constexpr char kToVersion1[] =
    "CREATE TABLE dumps("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  name TEXT NOT NULL UNIQUE,"
    "  process TEXT NOT NULL,"
    "  display_name TEXT NOT NULL,"
    "  create_seconds INTEGER NOT NULL,"
    "  finished INTEGER NOT NULL,"
    "  content_bytes INTEGER NOT NULL,"
    "  raw_bytes INTEGER NOT NULL,"
    "  header BLOB NOT NULL);"
    "CREATE INDEX dumps_by_process ON dumps(process, id);"
    "CREATE TABLE contents(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE raw_captures(id INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE store(id INTEGER NOT NULL);"
    "INSERT INTO store VALUES(random());"
    "PRAGMA application_id=1400138596;"
    "PRAGMA user_version=1;";
static_assert(kApplicationId == 1400138596);

// Crashes: what was taken, how often it happened, and which dumps belong to it. `trigger` and `fingerprint` repeat what the
// header says, for lists and for retention.
constexpr char kToVersion2[] =
    "ALTER TABLE dumps ADD COLUMN trigger INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE dumps ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';"
    "UPDATE dumps SET trigger = trigger_of(header) WHERE trigger_of(header) <> 1;"
    "CREATE INDEX dumps_by_worth ON dumps((trigger = 3), id);"
    "CREATE INDEX dumps_by_fingerprint ON dumps(fingerprint, id) WHERE fingerprint <> '';"
    "CREATE TABLE crash_ids("
    "  number INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  dump TEXT NOT NULL);"
    "CREATE TABLE stack_groups("
    "  id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  fingerprint TEXT NOT NULL UNIQUE,"
    "  last_dump_id INTEGER NOT NULL,"
    "  data BLOB NOT NULL);"
    "CREATE INDEX stack_groups_by_last_dump ON stack_groups(last_dump_id);"
    "PRAGMA user_version=2;";
static_assert(v1::Dump::REQUEST == 1 && v1::Dump::CRASH == 3);

// `attempts`: how often a daemon began to unwind and name the dump and did not come to an end.
constexpr char kToVersion3[] =
    "ALTER TABLE dumps ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE retention_clock("
    "  id INTEGER PRIMARY KEY,"
    "  seen_seconds INTEGER NOT NULL,"
    "  trusted_from_seconds INTEGER NOT NULL);"
    "PRAGMA user_version=3;";

// From each version to the next. A new file takes the same way as an old one, so both end with the same tables.
constexpr const char* kSteps[] = {kToVersion1, kToVersion2, kToVersion3};
static_assert(std::size(kSteps) == kSchemaVersion);

// trigger_of(header)
void TriggerOf(sqlite3_context* context, int, sqlite3_value** arguments) {
  v1::Dump header;
  const void* bytes = sqlite3_value_blob(arguments[0]);
  const bool parsed = bytes != nullptr && header.ParseFromArray(bytes, sqlite3_value_bytes(arguments[0]));
  sqlite3_result_int(context, parsed ? header.trigger() : v1::Dump::REQUEST);
}

int Execute(sqlite3* connection, const char* sql) { return sqlite3_exec(connection, sql, nullptr, nullptr, nullptr); }

}  // namespace

int BringUpToDate(sqlite3* connection, int version) {
  int result = sqlite3_create_function(connection, "trigger_of", 1, SQLITE_UTF8, nullptr, TriggerOf, nullptr, nullptr);
  if (result == SQLITE_OK) result = Execute(connection, "BEGIN IMMEDIATE");
  if (result != SQLITE_OK) return result;
  for (int i = version; i < kSchemaVersion && result == SQLITE_OK; ++i) result = Execute(connection, kSteps[i]);
  if (result == SQLITE_OK) result = Execute(connection, "COMMIT");
  if (result != SQLITE_OK) Execute(connection, "ROLLBACK");
  return result;
}

}  // namespace stackd
