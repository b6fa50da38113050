// The store's file: made, opened, checked, brought up to date, and begun anew where it is corrupt.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/store/sqlite.h"

namespace stackd {

// Thread safety: one thread at a time.
class Database {
 public:
  // Opens `file` or makes it. A corrupt one is moved aside, and one sentence about that appended to `problems`. Of the
  // files moved so, the newest stays, and as many others as have `max_corrupt_bytes` together. Fails with one sentence that
  // says what to change.
  static Result<Database> Open(const std::string& file, int64_t max_corrupt_bytes, std::vector<std::string>* problems);

  // `sql` is a literal: it is prepared once, and known by its address.
  Query Run(const char* sql);
  // SQLITE_OK or an error; for statements that return nothing.
  int Execute(const char* sql);

  sqlite3* connection() const { return connection_.get(); }
  // Chosen at random when the file was made.
  uint64_t store_id() const { return store_id_; }

  // True if the file is no longer where it was: whatever is written now is lost with the daemon's end.
  bool IsGone() const;

  // Closes it and moves the file away, as Open does. The database is of no use afterwards.
  Result<void> MoveAside(std::vector<std::string>* problems);

 private:
  Database(std::string file, int64_t max_corrupt_bytes, Connection connection)
      : file_(std::move(file)), max_corrupt_bytes_(max_corrupt_bytes), connection_(std::move(connection)) {}

  // SQLITE_OK or an error; refusals are sentences in `refusal`.
  int Prepare(std::string* refusal);

  std::string file_;
  int64_t max_corrupt_bytes_;
  Connection connection_;
  std::unordered_map<const char*, Statement> statements_;  // before connection_ in destruction
  uint64_t store_id_ = 0;
};

}  // namespace stackd
