// SQLite with one owner per object and Result for errors. Nothing here knows about dumps.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/result.h"

namespace stackd {

// A prepared statement while it runs: bind, step, read columns; reset at the end of its life.
class Query {
 public:
  // `statement` may be null: then preparing it failed, and Step tells why.
  Query(sqlite3* connection, sqlite3_stmt* statement) : connection_(connection), statement_(statement) {}
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  ~Query() {
    if (statement_ == nullptr) return;
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }

  // Parameters count from 1. Texts and blobs must live until the query's end.
  Query& Bind(int parameter, int64_t value) {
    if (statement_ != nullptr) sqlite3_bind_int64(statement_, parameter, value);
    return *this;
  }
  Query& BindText(int parameter, std::string_view text) {
    if (statement_ != nullptr)
      sqlite3_bind_text64(statement_, parameter, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
    return *this;
  }
  Query& BindBlob(int parameter, std::string_view bytes) {
    if (statement_ != nullptr) sqlite3_bind_blob64(statement_, parameter, bytes.data(), bytes.size(), SQLITE_STATIC);
    return *this;
  }

  // SQLITE_ROW, SQLITE_DONE or an error.
  int Step() { return statement_ == nullptr ? sqlite3_errcode(connection_) : sqlite3_step(statement_); }

  // Columns count from 0; valid after SQLITE_ROW until the next step.
  int64_t Integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string Bytes(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size_bytes = sqlite3_column_bytes(statement_, column);
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size_bytes);
  }

 private:
  sqlite3* connection_;
  sqlite3_stmt* statement_;
};

struct CloseConnection {
  void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
};
using Connection = std::unique_ptr<sqlite3, CloseConnection>;

struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// True for what says that the file is no healthy database, as opposed to a full disk or a lack of rights.
inline bool IsCorruption(int code) { return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB; }

}  // namespace stackd
