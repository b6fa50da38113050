#include "daemon/store/transactions.h"

#include <string_view>
#include <utility>

namespace stackd {
namespace {

// Free pages are used again by the next dumps; only what is left over for long goes back to the disk.
constexpr int64_t kFreePagesKept = 1024;
constexpr char kGiveBackPages[] = "PRAGMA incremental_vacuum(64)";

std::string_view ReasonOf(int code, sqlite3* connection) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return "no space is left on its disk";
    case SQLITE_READONLY:
      return "it is read-only";
    case SQLITE_BUSY:
      return "another process has it locked";
    case SQLITE_TOOBIG:
      return "the dump is too large";
    default:
      return sqlite3_errmsg(connection);
  }
}

}  // namespace

Result<void> Transactions::Open() {
  auto opened = Reopen();
  // Damage that the first look does not meet is met by counting: then the file is moved aside, and a new one is made.
  return opened || database_ ? opened : Reopen();
}

Result<void> Transactions::Reopen() {
  auto opened = Database::Open(file_, max_bytes_, &problems_);
  if (!opened) return std::unexpected(opened.error());
  database_.emplace(std::move(*opened));
  return Read([this](Database* database) {
    totals_.crashes = totals_.others = {};
    last_id_at_open_ = 0;
    const int result = ReadAmounts(database, &totals_.crashes, &totals_.others, &last_id_at_open_);
    return result == SQLITE_DONE ? ReadGroupTotals(database, &totals_.groups) : result;
  });
}

Result<void> Transactions::Failed(const char* what, int code) {
  auto error =
      Error(Code::kUnavailable,
            "the store " + file_ + " could not be " + what + ": " + std::string(ReasonOf(code, database_->connection())),
            "STORE_UNAVAILABLE");
  if (IsCorruption(code)) {
    // What can be read of it is for people with tools; the next call begins a new file.
    if (auto moved = database_->MoveAside(&problems_); !moved) error = std::unexpected(moved.error());
    database_.reset();
    totals_.crashes = totals_.others = {};
    totals_.groups = {};
  }
  return error;
}

Result<void> Transactions::Write(const std::function<int(Database*, Totals*)>& body) {
  if (database_ && database_->IsGone()) {
    problems_.push_back("the store " + file_ + " was removed or replaced while in use; its dumps are lost");
    database_.reset();
  }
  for (int attempt = 0;; ++attempt) {
    if (!database_) {
      if (auto opened = Reopen(); !opened) return opened;
    }
    Totals after = totals_;
    int result = database_->Execute("BEGIN IMMEDIATE");
    if (result == SQLITE_OK) result = body(&*database_, &after);
    if (result == SQLITE_DONE) result = database_->Execute("COMMIT");
    if (result == SQLITE_OK) {
      totals_ = after;
      return {};
    }
    auto failed = Failed("written", result);
    if (database_) {
      database_->Execute("ROLLBACK");
      return failed;
    }
    if (attempt > 0) return failed;
  }
}

Result<void> Transactions::Read(const std::function<int(Database*)>& body) {
  if (!database_) {
    if (auto opened = Reopen(); !opened) return opened;
  }
  const int result = body(&*database_);
  if (result == SQLITE_ROW || result == SQLITE_DONE) return {};
  return Failed("read", result);
}

void Transactions::GiveBackFreePages() {
  auto free_pages = database_->Run("PRAGMA freelist_count");
  if (free_pages.Step() != SQLITE_ROW || free_pages.Integer(0) <= kFreePagesKept) return;
  // Best effort: the pages stay free and are tried again after the next dump.
  database_->Execute(kGiveBackPages);
}

}  // namespace stackd
