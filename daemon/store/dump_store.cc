#include "daemon/store/dump_store.h"

#include <google/protobuf/util/field_mask_util.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/store/compress.h"
#include "daemon/store/database.h"
#include "daemon/store/dump_name.h"
#include "daemon/store/page_token.h"

namespace stackd {
namespace {

constexpr int kDefaultPageSize = 50;
constexpr int kMaxPageSize = 1000;
// A page stays well below the 4 MiB that clients accept.
constexpr size_t kMaxPageBytes = 3 << 20;

// What one write may spend on the limits: a store that was given smaller ones shrinks over many writes.
constexpr int kMaxEvictionsPerWrite = 64;
// Free pages are used again by the next dumps; only what is left over for long goes back to the disk.
constexpr int64_t kFreePagesKept = 1024;
constexpr char kGiveBackPages[] = "PRAGMA incremental_vacuum(64)";

// What is kept in memory of the dumps written last, in serialized bytes: few, for the daemon's own footprint.
constexpr size_t kMaxRecentDumps = 4;
constexpr uint64_t kMaxRecentBytes = 4 << 20;

struct Totals {
  int64_t dumps = 0;
  int64_t bytes = 0;
  int64_t evicted = 0;
};

std::unexpected<Status> NotFound(const std::string& name) {
  return Error(Code::kNotFound, "there is no dump " + name + ": it was deleted, evicted or never made", "DUMP_NOT_FOUND");
}

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

// What lists show. By exclusion, so that a field which the API gets later is not forgotten here.
google::protobuf::FieldMask HeaderFields() {
  constexpr int kExcluded[] = {v1::Dump::kGroupsFieldNumber, v1::Dump::kThreadsFieldNumber, v1::Dump::kStacksFieldNumber,
                               v1::Dump::kModulesFieldNumber, v1::Dump::kLinesFieldNumber};
  google::protobuf::FieldMask mask;
  const auto* descriptor = v1::Dump::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    if (std::ranges::find(kExcluded, descriptor->field(i)->number()) != std::end(kExcluded)) continue;
    mask.add_paths(descriptor->field(i)->name());
  }
  return mask;
}

std::string SerializeHeader(const v1::Dump& dump) {
  static const auto* const kFields = new google::protobuf::FieldMask(HeaderFields());
  v1::Dump header;
  google::protobuf::util::FieldMaskUtil::MergeMessageTo(dump, *kFields, {}, &header);
  return header.SerializeAsString();
}

Result<v1::Dump> ParseDump(const std::string& name, const std::string& bytes) {
  v1::Dump dump;
  if (!dump.ParseFromString(bytes)) return Error(Code::kDataLoss, "the dump " + name + " is damaged in the store");
  dump.set_stored(true);
  return dump;
}

// The dumps written last, newest first.
class RecentDumps {
 public:
  void Add(std::shared_ptr<const v1::Dump> dump, uint64_t size_bytes) {
    std::erase_if(dumps_, [&](const Kept& kept) { return kept.dump->name() == dump->name(); });
    dumps_.push_front({std::move(dump), size_bytes});
    uint64_t bytes = 0;
    size_t count = 0;
    while (count < std::min(dumps_.size(), kMaxRecentDumps) && bytes + dumps_[count].size_bytes <= kMaxRecentBytes) {
      bytes += dumps_[count++].size_bytes;
    }
    dumps_.resize(count);
  }

  // nullptr if it is not kept.
  std::shared_ptr<const v1::Dump> Find(std::string_view name) const {
    const auto kept = std::ranges::find_if(dumps_, [&](const Kept& kept) { return kept.dump->name() == name; });
    return kept == dumps_.end() ? nullptr : kept->dump;
  }

 private:
  struct Kept {
    std::shared_ptr<const v1::Dump> dump;
    uint64_t size_bytes;
  };
  std::deque<Kept> dumps_;
};

// Adds what makes an unfinished dump understandable.
void MarkUnfinished(bool begun_by_this_daemon, v1::Dump* dump) {
  dump->set_state(v1::Dump::PARTIAL);
  dump->add_notes(begun_by_this_daemon
                      ? "its stacks were copied and stored, but are not unwound yet"
                      : "the daemon ended before the stacks were unwound: they are stored as they were copied");
}

}  // namespace

struct DumpStore::State {
  // A row to be written.
  struct Row {
    const std::string& name;
    std::string display_name;
    int64_t create_seconds;
    bool finished;
    std::string header;
    std::string data;  // compressed content or raw capture
  };

  explicit State(const DumpStoreOptions& given) : options(given) {}

  // All below: with `mutex` held.

  Result<void> Reopen();
  // Runs `body` (SQLITE_DONE, SQLITE_ROW or SQLITE_OK: good) in a transaction.
  Result<void> Write(const std::function<int(Totals*)>& body);
  // Runs `body`, which reads.
  Result<void> Read(const std::function<int()>& body);
  Result<void> Failed(const char* what, int code);

  // Write bodies: SQLITE_DONE or an error.
  int WriteRow(const Row& row, bool* exists, Totals* totals);
  int DeleteRow(int64_t id, int64_t bytes, Totals* totals);
  int Evict(int64_t kept_id, Totals* totals);
  void GiveBackFreePages();

  const DumpStoreOptions options;
  std::mutex mutex;
  std::optional<Database> database;  // empty: to be opened again
  // Unfinished dumps above it were begun by this daemon.
  int64_t last_id_at_open = 0;
  std::vector<std::string> problems;
  std::string refusal;  // of the last Put; empty if it was taken
  Totals totals;
  RecentDumps recent;
};

Result<void> DumpStore::State::Reopen() {
  auto opened = Database::Open(options.file, &problems);
  if (!opened) return std::unexpected(opened.error());
  database.emplace(std::move(*opened));
  return Read([this] {
    auto query = database->Run("SELECT count(*), total(length(header) + content_bytes + raw_bytes), max(id) FROM dumps");
    const int result = query.Step();
    totals.dumps = query.Integer(0);
    totals.bytes = query.Integer(1);
    last_id_at_open = query.Integer(2);
    return result;
  });
}

Result<void> DumpStore::State::Failed(const char* what, int code) {
  auto error = Error(
      Code::kUnavailable,
      "the store " + options.file + " could not be " + what + ": " + std::string(ReasonOf(code, database->connection())),
      "STORE_UNAVAILABLE");
  if (IsCorruption(code)) {
    // What can be read of it is for people with tools; the next call begins a new file.
    if (auto moved = database->MoveAside(&problems); !moved) error = std::unexpected(moved.error());
    database.reset();
    totals.dumps = totals.bytes = 0;
  }
  return error;
}

Result<void> DumpStore::State::Write(const std::function<int(Totals*)>& body) {
  if (database && database->IsGone()) {
    problems.push_back("the store " + options.file + " was removed or replaced while in use; its dumps are lost");
    database.reset();
  }
  for (int attempt = 0;; ++attempt) {
    if (!database) {
      if (auto opened = Reopen(); !opened) return opened;
    }
    Totals after = totals;
    int result = database->Execute("BEGIN IMMEDIATE");
    if (result == SQLITE_OK) result = body(&after);
    if (result == SQLITE_DONE) result = database->Execute("COMMIT");
    if (result == SQLITE_OK) {
      totals = after;
      return {};
    }
    auto failed = Failed("written", result);
    if (database) {
      database->Execute("ROLLBACK");
      return failed;
    }
    if (attempt > 0) return failed;
  }
}

Result<void> DumpStore::State::Read(const std::function<int()>& body) {
  if (!database) {
    if (auto opened = Reopen(); !opened) return opened;
  }
  const int result = body();
  if (result == SQLITE_ROW || result == SQLITE_DONE) return {};
  return Failed("read", result);
}

int DumpStore::State::WriteRow(const Row& row, bool* exists, Totals* after) {
  int64_t old_bytes = 0, old_raw_bytes = 0;
  {
    auto old = database->Run("SELECT length(header) + content_bytes + raw_bytes, raw_bytes FROM dumps WHERE name = ?");
    const int result = old.BindText(1, row.name).Step();
    if (result != SQLITE_ROW && result != SQLITE_DONE) return result;
    *exists = result == SQLITE_ROW;
    if (*exists) {
      old_bytes = old.Integer(0);
      old_raw_bytes = old.Integer(1);
    }
  }
  if (*exists && !row.finished) return SQLITE_DONE;

  const int64_t data_bytes = static_cast<int64_t>(row.data.size());
  const int64_t content_bytes = row.finished ? data_bytes : 0;
  const int64_t raw_bytes = row.finished ? old_raw_bytes : data_bytes;
  int64_t id;
  {
    auto put = database->Run(
        "INSERT INTO dumps(name, process, display_name, create_seconds, finished, content_bytes, raw_bytes, header)"
        " VALUES(?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(name) DO UPDATE SET display_name = excluded.display_name, create_seconds = excluded.create_seconds,"
        " finished = excluded.finished, content_bytes = excluded.content_bytes, raw_bytes = excluded.raw_bytes,"
        " header = excluded.header RETURNING id");
    put.BindText(1, row.name).BindText(2, ProcessOfDump(row.name)).BindText(3, row.display_name);
    put.Bind(4, row.create_seconds).Bind(5, row.finished).Bind(6, content_bytes).Bind(7, raw_bytes).BindBlob(8, row.header);
    const int result = put.Step();
    if (result != SQLITE_ROW) return result;
    id = put.Integer(0);
    if (const int end = put.Step(); end != SQLITE_DONE) return end;
  }
  {
    auto put = database->Run(row.finished ? "INSERT OR REPLACE INTO contents(id, data) VALUES(?, ?)"
                                          : "INSERT OR REPLACE INTO raw_captures(id, data) VALUES(?, ?)");
    const int result = put.Bind(1, id).BindBlob(2, row.data).Step();
    if (result != SQLITE_DONE) return result;
  }
  after->dumps += *exists ? 0 : 1;
  after->bytes += static_cast<int64_t>(row.header.size()) + content_bytes + raw_bytes - old_bytes;
  return Evict(id, after);
}

int DumpStore::State::DeleteRow(int64_t id, int64_t bytes, Totals* after) {
  for (const char* sql :
       {"DELETE FROM dumps WHERE id = ?", "DELETE FROM contents WHERE id = ?", "DELETE FROM raw_captures WHERE id = ?"}) {
    const int result = database->Run(sql).Bind(1, id).Step();
    if (result != SQLITE_DONE) return result;
  }
  --after->dumps;
  after->bytes -= bytes;
  return SQLITE_DONE;
}

int DumpStore::State::Evict(int64_t kept_id, Totals* after) {
  const int64_t oldest_seconds = WallNs() / kNsPerSecond - options.max_age_seconds;
  for (int i = 0; i < kMaxEvictionsPerWrite; ++i) {
    int64_t id, bytes;
    {
      auto oldest = database->Run(
          "SELECT id, length(header) + content_bytes + raw_bytes, create_seconds FROM dumps WHERE id <> ?"
          " ORDER BY id LIMIT 1");
      const int result = oldest.Bind(1, kept_id).Step();
      if (result != SQLITE_ROW) return result;
      const bool too_old = oldest.Integer(2) < oldest_seconds;
      if (!too_old && after->dumps <= options.max_dumps && after->bytes <= options.max_bytes) return SQLITE_DONE;
      id = oldest.Integer(0);
      bytes = oldest.Integer(1);
    }
    const int result = DeleteRow(id, bytes, after);
    if (result != SQLITE_DONE) return result;
    ++after->evicted;
  }
  return SQLITE_DONE;
}

void DumpStore::State::GiveBackFreePages() {
  auto free_pages = database->Run("PRAGMA freelist_count");
  if (free_pages.Step() != SQLITE_ROW || free_pages.Integer(0) <= kFreePagesKept) return;
  // Best effort: the pages stay free and are tried again after the next dump.
  database->Execute(kGiveBackPages);
}

DumpStore::DumpStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
DumpStore::~DumpStore() = default;

Result<std::unique_ptr<DumpStore>> DumpStore::Open(const DumpStoreOptions& options) {
  auto state = std::make_unique<State>(options);
  auto opened = state->Reopen();
  // Damage that the first look does not meet is met by counting: then the file is moved aside, and a new one is made.
  if (!opened && !state->database) opened = state->Reopen();
  if (!opened) return std::unexpected(opened.error());
  return std::unique_ptr<DumpStore>(new DumpStore(std::move(state)));
}

Result<void> DumpStore::PutRaw(const v1::Dump& header, const std::string& raw) {
  if (auto named = CheckDumpName(header.name()); !named) return named;
  auto data = Compress(raw);
  if (!data) return std::unexpected(data.error());
  const State::Row row{header.name(),      header.process().display_name(), header.create_time().seconds(),
                       /*finished=*/false, SerializeHeader(header),         std::move(*data)};
  const std::lock_guard lock(state_->mutex);
  bool exists = false;
  if (auto put = state_->Write([&](Totals* after) { return state_->WriteRow(row, &exists, after); }); !put) return put;
  if (exists) return Error(Code::kAlreadyExists, "the dump " + header.name() + " is there already");
  return {};
}

Result<PackedDump> DumpStore::Pack(std::shared_ptr<const v1::Dump> dump) {
  if (auto named = CheckDumpName(dump->name()); !named) return std::unexpected(named.error());
  std::string bytes;
  if (!dump->SerializeToString(&bytes)) return Error(Code::kOutOfRange, "the dump is too large to be stored: over 2 GiB");
  auto content = Compress(bytes);
  if (!content) return std::unexpected(content.error());
  std::string header = SerializeHeader(*dump);
  return PackedDump{std::move(dump), std::move(header), std::move(*content), bytes.size()};
}

Result<void> DumpStore::Put(PackedDump packed) {
  const v1::Dump& dump = *packed.dump;
  const State::Row row{dump.name(),       dump.process().display_name(), dump.create_time().seconds(),
                       /*finished=*/true, std::move(packed.header),      std::move(packed.content)};
  const std::lock_guard lock(state_->mutex);
  bool exists = false;
  auto put = state_->Write([&](Totals* after) { return state_->WriteRow(row, &exists, after); });
  state_->refusal = put ? "" : put.error().message;
  if (!put) return put;
  state_->GiveBackFreePages();
  state_->recent.Add(packed.dump, packed.content_bytes);
  return put;
}

Result<void> DumpStore::Put(const v1::Dump& dump) {
  auto copy = std::make_shared<v1::Dump>(dump);
  copy->set_stored(true);
  auto packed = Pack(std::move(copy));
  if (!packed) return std::unexpected(packed.error());
  return Put(std::move(*packed));
}

Result<v1::Dump> DumpStore::Get(const std::string& name) const {
  if (auto named = CheckDumpName(name); !named) return std::unexpected(named.error());
  bool found = false, finished = false, begun_by_this_daemon = false;
  std::string header, data;
  {
    const std::lock_guard lock(state_->mutex);
    auto read = state_->Read([&] {
      auto query = state_->database->Run(
          "SELECT dumps.id, finished, header, data FROM dumps LEFT JOIN contents ON contents.id = dumps.id WHERE name = ?");
      const int result = query.BindText(1, name).Step();
      found = result == SQLITE_ROW;
      if (found) {
        begun_by_this_daemon = query.Integer(0) > state_->last_id_at_open;
        finished = query.Integer(1) != 0;
        (finished ? data : header) = query.Bytes(finished ? 3 : 2);
      }
      return result;
    });
    if (!read) return std::unexpected(read.error());
  }
  if (!found) return NotFound(name);
  if (finished) {
    const auto bytes = Decompress(data);
    if (!bytes) return Error(Code::kDataLoss, "the dump " + name + " cannot be read: " + bytes.error().message);
    return ParseDump(name, *bytes);
  }
  auto dump = ParseDump(name, header);
  if (dump) MarkUnfinished(begun_by_this_daemon, &*dump);
  return dump;
}

Result<std::shared_ptr<const v1::Dump>> DumpStore::Find(const std::string& name) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (std::shared_ptr<const v1::Dump> kept = state_->recent.Find(name)) {
      // It may have been deleted or evicted since.
      bool is_stored = false;
      auto read = state_->Read([&] {
        auto query = state_->database->Run("SELECT 1 FROM dumps WHERE name = ? AND finished");
        const int result = query.BindText(1, name).Step();
        is_stored = result == SQLITE_ROW;
        return result;
      });
      if (read && is_stored) return kept;
    }
  }
  auto dump = Get(name);
  if (!dump) return std::unexpected(dump.error());
  return std::make_shared<const v1::Dump>(std::move(*dump));
}

Result<std::string> DumpStore::GetRaw(const std::string& name) const {
  if (auto named = CheckDumpName(name); !named) return std::unexpected(named.error());
  bool found = false;
  std::string data;
  {
    const std::lock_guard lock(state_->mutex);
    auto read = state_->Read([&] {
      auto query =
          state_->database->Run("SELECT data FROM dumps JOIN raw_captures ON raw_captures.id = dumps.id WHERE name = ?");
      const int result = query.BindText(1, name).Step();
      found = result == SQLITE_ROW;
      if (found) data = query.Bytes(0);
      return result;
    });
    if (!read) return std::unexpected(read.error());
  }
  if (!found) return NotFound(name);
  return Decompress(data);
}

Result<std::string> DumpStore::Newest() const {
  std::string name;
  const std::lock_guard lock(state_->mutex);
  auto read = state_->Read([&] {
    // One that is being unwound at this moment is the newest only if there is no other.
    int result = SQLITE_DONE;
    for (const char* sql : {"SELECT name FROM dumps WHERE finished OR id <= ? ORDER BY id DESC LIMIT 1",
                            "SELECT name FROM dumps WHERE id > ? ORDER BY id DESC LIMIT 1"}) {
      auto query = state_->database->Run(sql);
      result = query.Bind(1, state_->last_id_at_open).Step();
      if (result == SQLITE_ROW) name = query.Bytes(0);
      if (result != SQLITE_DONE) break;
    }
    return result;
  });
  if (!read) return std::unexpected(read.error());
  if (name.empty()) return Error(Code::kNotFound, "there is no dump yet", "DUMP_NOT_FOUND");
  return name;
}

std::vector<std::string> DumpStore::Unfinished() const {
  std::vector<std::string> names;
  const std::lock_guard lock(state_->mutex);
  // A store that cannot be read says so elsewhere, at the next dump.
  (void)state_->Read([&] {
    auto query = state_->database->Run("SELECT name FROM dumps WHERE NOT finished AND id <= ? ORDER BY id");
    query.Bind(1, state_->last_id_at_open);
    int result;
    while ((result = query.Step()) == SQLITE_ROW) names.push_back(query.Bytes(0));
    return result;
  });
  return names;
}

Result<DumpPage> DumpStore::List(const DumpQuery& query) const {
  if (query.page_size < 0) return Error(Code::kInvalidArgument, "page_size is negative", "BAD_PAGE_SIZE");
  const int page_size = query.page_size == 0 ? kDefaultPageSize : std::min(query.page_size, kMaxPageSize);
  const std::string parent = query.parent == "processes/-" ? "" : query.parent;
  if (!parent.empty()) {
    if (auto named = CheckProcessName(parent); !named) return std::unexpected(named.error());
  }

  DumpPage page;
  const std::lock_guard lock(state_->mutex);
  bool bad_token = false;
  Result<void> damaged;
  auto read = state_->Read([&] {
    const PageQuery token_query{state_->database->store_id(), parent, query.filter};
    int64_t before_id = std::numeric_limits<int64_t>::max();
    if (!query.page_token.empty()) {
      const auto position = DecodePageToken(token_query, query.page_token);
      bad_token = !position.has_value();
      if (bad_token) return SQLITE_DONE;
      before_id = *position;
    }
    auto rows = state_->database->Run(
        parent.empty() ? "SELECT id, finished, name, header FROM dumps WHERE id < ? AND instr(display_name, ?)"
                         " ORDER BY id DESC"
                       : "SELECT id, finished, name, header FROM dumps WHERE id < ? AND instr(display_name, ?)"
                         " AND process = ? ORDER BY id DESC");
    rows.Bind(1, before_id).BindText(2, query.filter);
    if (!parent.empty()) rows.BindText(3, parent);
    size_t page_bytes = 0;
    int64_t last_id = 0;
    int result;
    while ((result = rows.Step()) == SQLITE_ROW) {
      const std::string header = rows.Bytes(3);
      const bool full = std::ssize(page.dumps) == page_size || page_bytes + header.size() > kMaxPageBytes;
      if (full && !page.dumps.empty()) {
        page.next_page_token = EncodePageToken(token_query, last_id);
        return SQLITE_DONE;
      }
      last_id = rows.Integer(0);
      page_bytes += header.size();
      auto dump = ParseDump(rows.Bytes(2), header);
      if (!dump) {
        // The others are worth more than a page without a fault.
        dump = v1::Dump();
        dump->set_name(rows.Bytes(2));
        dump->add_notes("it is damaged in the store");
      } else if (rows.Integer(1) == 0) {
        MarkUnfinished(last_id > state_->last_id_at_open, &*dump);
      }
      page.dumps.push_back(std::move(*dump));
    }
    return result;
  });
  if (!read) return std::unexpected(read.error());
  if (bad_token) {
    return Error(Code::kInvalidArgument, "page_token is not from an earlier page of the same query", "BAD_PAGE_TOKEN");
  }
  return page;
}

Result<void> DumpStore::Delete(const std::string& name) {
  if (auto named = CheckDumpName(name); !named) return named;
  const std::lock_guard lock(state_->mutex);
  bool found = false;
  auto deleted = state_->Write([&](Totals* after) {
    int64_t id = 0, bytes = 0;
    {
      auto query = state_->database->Run("SELECT id, length(header) + content_bytes + raw_bytes FROM dumps WHERE name = ?");
      const int result = query.BindText(1, name).Step();
      found = result == SQLITE_ROW;
      if (!found) return result;
      id = query.Integer(0);
      bytes = query.Integer(1);
    }
    return state_->DeleteRow(id, bytes, after);
  });
  if (!deleted) return deleted;
  if (!found) return NotFound(name);
  return {};
}

int64_t DumpStore::dump_count() const {
  const std::lock_guard lock(state_->mutex);
  return state_->totals.dumps;
}

int64_t DumpStore::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->totals.bytes;
}

int64_t DumpStore::evicted_count() const {
  const std::lock_guard lock(state_->mutex);
  return state_->totals.evicted;
}

std::vector<std::string> DumpStore::Problems() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> problems = state_->problems;
  if (!state_->refusal.empty()) problems.push_back("the last dump could not be stored: " + state_->refusal);
  return problems;
}

}  // namespace stackd
