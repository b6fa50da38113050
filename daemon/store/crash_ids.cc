#include "daemon/store/crash_ids.h"

namespace stackd {
namespace {

// A crash comes again within the life of one spool folder, if at all. About 10 MB.
constexpr int64_t kMaxCrashIds = 100'000;

}  // namespace

int ClaimCrash(Database* database, const std::string& crash_id, const std::string& dump, bool* is_taken) {
  *is_taken = false;
  {
    auto known = database->Run("SELECT dump FROM crash_ids WHERE id = ?");
    const int result = known.BindText(1, crash_id).Step();
    if (result == SQLITE_ROW) {
      *is_taken = known.Bytes(0) != dump;
      return SQLITE_DONE;
    }
    if (result != SQLITE_DONE) return result;
  }
  int64_t number;
  {
    auto put = database->Run("INSERT INTO crash_ids(id, dump) VALUES(?, ?) RETURNING number");
    const int result = put.BindText(1, crash_id).BindText(2, dump).Step();
    if (result != SQLITE_ROW) return result;
    number = put.Integer(0);
    if (const int end = put.Step(); end != SQLITE_DONE) return end;
  }
  return database->Run("DELETE FROM crash_ids WHERE number <= ?").Bind(1, number - kMaxCrashIds).Step();
}

}  // namespace stackd
