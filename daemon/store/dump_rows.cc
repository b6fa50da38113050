#include "daemon/store/dump_rows.h"

#include <algorithm>

#include "daemon/store/dump_name.h"

namespace stackd {
namespace {

// As the index dumps_by_worth has it: SQLite uses it for the same expression only.
#define IS_CRASH "(trigger = 3)"
static_assert(v1::Dump::CRASH == 3);
#define BYTES "length(header) + content_bytes + raw_bytes"
#define SELECT_ROW "SELECT id, " BYTES ", raw_bytes, " IS_CRASH ", create_seconds, fingerprint, finished FROM dumps"
#define OF_FINGERPRINT "FROM dumps WHERE fingerprint = ?1 AND fingerprint <> ''"  // as the index has it

// Reads what SELECT_ROW gives, or nothing.
int ReadRow(Query* query, DumpRow* row) {
  const int result = query->Step();
  if (result != SQLITE_ROW) return result;
  *row = {.id = query->Integer(0),
          .bytes = query->Integer(1),
          .raw_bytes = query->Integer(2),
          .is_crash = query->Integer(3) != 0,
          .create_seconds = query->Integer(4),
          .fingerprint = query->Bytes(5),
          .is_finished = query->Integer(6) != 0};
  return SQLITE_DONE;
}

}  // namespace

int FindDump(Database* database, const std::string& name, DumpRow* row) {
  auto query = database->Run(SELECT_ROW " WHERE name = ?");
  return ReadRow(&query.BindText(1, name), row);
}

int FindOldest(Database* database, bool is_crash, int64_t kept_id, DumpRow* row) {
  auto query = database->Run(SELECT_ROW " WHERE " IS_CRASH " = ? AND id <> ? ORDER BY id LIMIT 1");
  return ReadRow(&query.Bind(1, is_crash).Bind(2, kept_id), row);
}

int FindBetween(Database* database, const std::string& fingerprint, int64_t kept_id, int64_t kept_of_each_end,
                DumpRow* row) {
  {
    auto count = database->Run("SELECT count(*) " OF_FINGERPRINT);
    if (const int result = count.BindText(1, fingerprint).Step(); result != SQLITE_ROW) return result;
    if (count.Integer(0) <= 2 * kept_of_each_end) return SQLITE_DONE;
  }
  auto query =
      database->Run(SELECT_ROW " WHERE fingerprint = ?1 AND fingerprint <> '' AND id <> ?2 ORDER BY id LIMIT 1 OFFSET ?3");
  return ReadRow(&query.BindText(1, fingerprint).Bind(2, kept_id).Bind(3, kept_of_each_end), row);
}

int UpsertDump(Database* database, const NewRow& row, const DumpRow& old, DumpRow* written) {
  const int64_t data_bytes = std::ssize(row.data);
  const int64_t content_bytes = row.is_finished ? data_bytes : 0;
  const int64_t raw_bytes = row.is_finished ? old.raw_bytes : data_bytes;
  {
    auto put = database->Run(
        "INSERT INTO dumps(name, process, display_name, create_seconds, finished, content_bytes, raw_bytes, header, "
        "trigger,"
        " fingerprint) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(name) DO UPDATE SET display_name = excluded.display_name, create_seconds = excluded.create_seconds,"
        " finished = excluded.finished, content_bytes = excluded.content_bytes, raw_bytes = excluded.raw_bytes,"
        " header = excluded.header, trigger = excluded.trigger, fingerprint = excluded.fingerprint RETURNING id");
    put.BindText(1, row.dump.name()).BindText(2, ProcessOfDump(row.dump.name()));
    put.BindText(3, row.dump.process().display_name()).Bind(4, row.dump.create_time().seconds()).Bind(5, row.is_finished);
    put.Bind(6, content_bytes).Bind(7, raw_bytes).BindBlob(8, row.header).Bind(9, row.dump.trigger());
    put.BindText(10, row.fingerprint);
    const int result = put.Step();
    if (result != SQLITE_ROW) return result;
    written->id = put.Integer(0);
    if (const int end = put.Step(); end != SQLITE_DONE) return end;
  }
  written->bytes = std::ssize(row.header) + content_bytes + raw_bytes;
  written->is_crash = row.dump.trigger() == v1::Dump::CRASH;
  auto put = database->Run(row.is_finished ? "INSERT OR REPLACE INTO contents(id, data) VALUES(?, ?)"
                                           : "INSERT OR REPLACE INTO raw_captures(id, data) VALUES(?, ?)");
  return put.Bind(1, written->id).BindBlob(2, row.data).Step();
}

int DeleteDump(Database* database, int64_t id) {
  int result = SQLITE_DONE;
  for (const char* sql :
       {"DELETE FROM dumps WHERE id = ?", "DELETE FROM contents WHERE id = ?", "DELETE FROM raw_captures WHERE id = ?"}) {
    if (result == SQLITE_DONE) result = database->Run(sql).Bind(1, id).Step();
  }
  return result;
}

int AddAttempts(Database* database, const std::string& name, int64_t attempts) {
  auto update = database->Run("UPDATE dumps SET attempts = max(attempts + ?2, 0) WHERE name = ?1 AND NOT finished");
  return update.BindText(1, name).Bind(2, attempts).Step();
}

int ReadDump(Database* database, const std::string& name, StoredDump* dump, std::string* content) {
  auto query = database->Run(
      "SELECT dumps.id, finished, header, attempts, data FROM dumps LEFT JOIN contents ON contents.id = dumps.id"
      " WHERE name = ?");
  const int result = query.BindText(1, name).Step();
  if (result != SQLITE_ROW) return result;
  *dump = {query.Integer(0), query.Integer(1) != 0, name, query.Bytes(2), query.Integer(3)};
  *content = query.Bytes(4);
  return SQLITE_DONE;
}

int ReadRaw(Database* database, const std::string& name, bool* found, std::string* raw) {
  auto query = database->Run("SELECT data FROM dumps LEFT JOIN raw_captures ON raw_captures.id = dumps.id WHERE name = ?");
  const int result = query.BindText(1, name).Step();
  *found = result == SQLITE_ROW;
  if (*found) *raw = query.Bytes(0);
  return result;
}

int ReadNewest(Database* database, int64_t last_id_at_open, std::string* name) {
  // A dump that is being unwound at this moment is the newest only if there is no other.
  int result = SQLITE_DONE;
  for (const char* sql : {"SELECT name FROM dumps WHERE finished OR id <= ? ORDER BY id DESC LIMIT 1",
                          "SELECT name FROM dumps WHERE id > ? ORDER BY id DESC LIMIT 1"}) {
    auto query = database->Run(sql);
    result = query.Bind(1, last_id_at_open).Step();
    if (result == SQLITE_ROW) *name = query.Bytes(0);
    if (result != SQLITE_DONE) break;
  }
  return result;
}

int ReadUnfinished(Database* database, int64_t last_id_at_open, int64_t min_attempts, int64_t max_attempts,
                   std::vector<std::string>* names) {
  auto query =
      database->Run("SELECT name FROM dumps WHERE NOT finished AND id <= ? AND attempts BETWEEN ? AND ? ORDER BY id");
  query.Bind(1, last_id_at_open).Bind(2, min_attempts).Bind(3, max_attempts);
  int result;
  while ((result = query.Step()) == SQLITE_ROW) names->push_back(query.Bytes(0));
  return result;
}

int ReadNamesOfGroup(Database* database, const std::string& fingerprint, int64_t max_of_each_end,
                     google::protobuf::RepeatedPtrField<std::string>* names) {
  auto query = database->Run("SELECT name FROM (SELECT * FROM (SELECT id, name " OF_FINGERPRINT
                             " ORDER BY id LIMIT ?2) UNION SELECT * FROM (SELECT id, name " OF_FINGERPRINT
                             " ORDER BY id DESC LIMIT ?2)) ORDER BY id");
  query.BindText(1, fingerprint).Bind(2, max_of_each_end);
  int result;
  while ((result = query.Step()) == SQLITE_ROW) *names->Add() = query.Bytes(0);
  return result;
}

int ReadAmounts(Database* database, Amount* crashes, Amount* others, int64_t* last_id) {
  auto query = database->Run("SELECT " IS_CRASH ", count(*), total(" BYTES "), max(id) FROM dumps GROUP BY " IS_CRASH);
  int result;
  while ((result = query.Step()) == SQLITE_ROW) {
    *(query.Integer(0) != 0 ? crashes : others) = {query.Integer(1), query.Integer(2)};
    *last_id = std::max(*last_id, query.Integer(3));
  }
  return result;
}

int ListDumps(Database* database, const DumpSelection& selection, int64_t before_id,
              const std::function<int(const StoredDump&)>& take) {
  const bool of_all = selection.process.empty();
  auto query = database->Run(
      of_all ? "SELECT id, finished, name, header, attempts FROM dumps WHERE id < ? AND instr(display_name, ?)"
               " AND ?3 IN (0, trigger) ORDER BY id DESC"
             : "SELECT id, finished, name, header, attempts FROM dumps WHERE id < ? AND instr(display_name, ?)"
               " AND ?3 IN (0, trigger) AND process = ? ORDER BY id DESC");
  query.Bind(1, before_id).BindText(2, selection.part_of_display_name).Bind(3, selection.trigger);
  if (!of_all) query.BindText(4, selection.process);
  int result;
  while ((result = query.Step()) == SQLITE_ROW) {
    result = take({query.Integer(0), query.Integer(1) != 0, query.Bytes(2), query.Bytes(3), query.Integer(4)});
    if (result != SQLITE_ROW) break;
  }
  return result;
}

}  // namespace stackd
