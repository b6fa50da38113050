#include "daemon/store/database.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "daemon/base/fd.h"
#include "daemon/store/schema.h"

namespace stackd {
namespace {

constexpr char kMemory[] = ":memory:";
constexpr int kBusyTimeoutMs = 2000;
constexpr size_t kMaxCorruptFiles = 8;

// Pages of 16 KiB: contents are blobs of 10 KiB to megabytes, and SQLite keeps a large one as a list of pages. The log is
// written back after 1,000 of them. Only then is anything waited for, so a commit costs no fsync (synchronous=NORMAL). A
// loss of power may lose the last dumps, the end of the daemon does not.
constexpr char kSettings[] =
    "PRAGMA page_size=16384;"
    "PRAGMA auto_vacuum=INCREMENTAL;"
    "PRAGMA journal_mode=WAL;"
    "PRAGMA synchronous=NORMAL;"
    "PRAGMA wal_autocheckpoint=1000;"
    "PRAGMA journal_size_limit=33554432;"
    "PRAGMA temp_store=MEMORY;";

std::unexpected<Status> CannotOpen(const std::string& file, const std::string& why) {
  return Error(Code::kUnavailable, "the store " + file + " cannot be opened: " + why, "STORE_UNAVAILABLE");
}

// Dumps tell how programs work inside: they are for the daemon's user alone. SQLite gives its side files the same mode.
// A file that is there is not opened: closing it would end the locks that SQLite may hold on it in this process.
Result<void> MakePrivateFile(const std::string& file) {
  struct stat status;
  if (stat(file.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) return CannotOpen(file, "it is not a regular file");
    if ((status.st_mode & 0077) != 0) chmod(file.c_str(), 0600);
    return {};
  }
  const Fd fd(open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.valid()) {
    // Left behind by a file that was removed: a new one must not be taken for it.
    unlink((file + "-wal").c_str());
    unlink((file + "-shm").c_str());
  }
  if (fd.valid() || errno == EEXIST) return {};
  return CannotOpen(file, std::string(strerror(errno)) + "; make its folder writable or choose another with --store");
}

// A file that was moved aside, with its log.
struct CorruptFile {
  uint64_t number;
  std::string path;
  int64_t size_bytes;
};

// All "FILE.corrupt-N", oldest first.
std::vector<CorruptFile> CorruptFilesOf(const std::string& file) {
  const std::filesystem::path path(file);
  const std::string prefix = path.filename().string() + ".corrupt-";
  std::vector<CorruptFile> files;
  std::error_code error;
  const auto size_of = [](const std::string& name) {
    struct stat status;
    return lstat(name.c_str(), &status) == 0 ? static_cast<int64_t>(status.st_size) : 0;
  };
  for (std::filesystem::directory_iterator entry(path.has_parent_path() ? path.parent_path() : ".", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    uint64_t number = 0;
    const char* const begin = name.data() + prefix.size();
    const char* const name_end = name.data() + name.size();
    const auto [stop, bad] = std::from_chars(begin, name_end, number);
    if (bad != std::errc() || stop != name_end) continue;
    const std::string aside = file + name.substr(path.filename().string().size());
    files.push_back({number, aside, size_of(aside) + size_of(aside + "-wal")});
  }
  std::ranges::sort(files, {}, &CorruptFile::number);
  return files;
}

// A disk that corrupts file after file must not be filled with them, nor its volume outgrown.
void RemoveOldCorruptFiles(const std::string& file, int64_t max_bytes, std::vector<std::string>* problems) {
  const std::vector<CorruptFile> files = CorruptFilesOf(file);
  int64_t bytes = 0;
  for (const CorruptFile& corrupt : files) bytes += corrupt.size_bytes;
  for (size_t i = 0; i + 1 < files.size() && (files.size() - i > kMaxCorruptFiles || bytes > max_bytes); ++i) {
    unlink(files[i].path.c_str());
    unlink((files[i].path + "-wal").c_str());
    bytes -= files[i].size_bytes;
    problems->push_back("the corrupt store " + files[i].path + " was removed: newer ones need its space; check the disk");
  }
}

// The log belongs to the file: left behind, it would be applied to the next one.
Result<void> MoveFilesAside(const std::string& file, int64_t max_corrupt_bytes, std::vector<std::string>* problems) {
  const std::vector<CorruptFile> before = CorruptFilesOf(file);
  const uint64_t number = before.empty() ? 1 : before.back().number + 1;
  const std::string aside = file + ".corrupt-" + std::to_string(number);
  if (rename(file.c_str(), aside.c_str()) != 0)
    return CannotOpen(file, std::string("it is corrupt, and ") + strerror(errno));
  rename((file + "-wal").c_str(), (aside + "-wal").c_str());
  unlink((file + "-shm").c_str());
  problems->push_back("the store " + file + " was corrupt and was moved to " + aside);
  RemoveOldCorruptFiles(file, max_corrupt_bytes, problems);
  return {};
}

// An int that SQLite tells by one row of one column.
int ReadInt(sqlite3* connection, const char* sql, int64_t* value) {
  sqlite3_stmt* prepared = nullptr;
  sqlite3_prepare_v2(connection, sql, -1, &prepared, nullptr);
  const Statement owner(prepared);
  Query query(connection, prepared);
  const int result = query.Step();
  if (result != SQLITE_ROW) return result == SQLITE_DONE ? SQLITE_CORRUPT : result;
  *value = query.Integer(0);
  return SQLITE_OK;
}

}  // namespace

Query Database::Run(const char* sql) {
  Statement& statement = statements_[sql];
  if (statement == nullptr) {
    sqlite3_stmt* prepared = nullptr;
    sqlite3_prepare_v3(connection_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
    statement.reset(prepared);
  }
  return Query(connection_.get(), statement.get());
}

int Database::Execute(const char* sql) { return sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr); }

int Database::Prepare(std::string* refusal) {
  sqlite3_busy_timeout(connection_.get(), kBusyTimeoutMs);
  int64_t version, application, tables;
  // The header is read before anything is written: another program's file stays as it is.
  int result = ReadInt(connection_.get(), "PRAGMA user_version", &version);
  if (result == SQLITE_OK) result = ReadInt(connection_.get(), "PRAGMA application_id", &application);
  if (result == SQLITE_OK) result = ReadInt(connection_.get(), "SELECT count(*) FROM sqlite_master", &tables);
  if (result != SQLITE_OK) return result;
  if (tables > 0 && application != kApplicationId) {
    *refusal = "it is an SQLite database of another program; choose another file with --store";
    return SQLITE_OK;
  }
  if (version > kSchemaVersion) {
    *refusal = "it was written by a newer stackd (version " + std::to_string(version) + " of its tables; this one knows " +
               std::to_string(kSchemaVersion) + "); use that, or choose another file with --store";
    return SQLITE_OK;
  }
  if (tables > 0 && version < 1) return SQLITE_CORRUPT;
  const int from = tables == 0 ? 0 : static_cast<int>(version);
  result = Execute(kSettings);
  if (result == SQLITE_OK && from < kSchemaVersion) result = BringUpToDate(connection_.get(), from);
  int64_t store_id = 0;
  if (result == SQLITE_OK) result = ReadInt(connection_.get(), "SELECT id FROM store", &store_id);
  store_id_ = static_cast<uint64_t>(store_id);
  return result;
}

Result<Database> Database::Open(const std::string& file, int64_t max_corrupt_bytes, std::vector<std::string>* problems) {
  const bool in_memory = file == kMemory;
  for (int attempt = 0;; ++attempt) {
    if (!in_memory) {
      if (auto made = MakePrivateFile(file); !made) return std::unexpected(made.error());
    }
    sqlite3* opened = nullptr;
    // No mutex: the owner of the Database has one.
    const int create = in_memory ? SQLITE_OPEN_CREATE : 0;
    int result = sqlite3_open_v2(file.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | create, nullptr);
    Database database(file, max_corrupt_bytes, Connection(opened));
    std::string refusal;
    if (result == SQLITE_OK) result = database.Prepare(&refusal);
    if (!refusal.empty()) {
      return Error(Code::kFailedPrecondition, "the store " + file + " cannot be opened: " + refusal, "STORE_UNAVAILABLE");
    }
    if (result == SQLITE_OK) return database;
    if (!IsCorruption(result) || in_memory || attempt > 0) {
      return CannotOpen(file, opened == nullptr ? "no memory" : sqlite3_errmsg(opened));
    }
    if (auto moved = database.MoveAside(problems); !moved) return std::unexpected(moved.error());
  }
}

bool Database::IsGone() const {
  int gone = 0;
  return sqlite3_file_control(connection_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &gone) == SQLITE_OK && gone != 0;
}

Result<void> Database::MoveAside(std::vector<std::string>* problems) {
  statements_.clear();
  connection_.reset();
  return MoveFilesAside(file_, max_corrupt_bytes_, problems);
}

}  // namespace stackd
