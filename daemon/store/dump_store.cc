#include "daemon/store/dump_store.h"

#include <google/protobuf/util/field_mask_util.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"
#include "daemon/store/compress.h"
#include "daemon/store/crash_groups.h"
#include "daemon/store/crash_ids.h"
#include "daemon/store/database.h"
#include "daemon/store/dump_name.h"
#include "daemon/store/page_builder.h"
#include "daemon/store/retention_clock.h"

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

// Share of the limits that is for dumps that are no crashes, however many crashes there are; and for groups.
constexpr int64_t kShareOfOthers = 4;
constexpr int64_t kShareOfGroups = 8;

// Page tokens hold one of these.
constexpr char kCrashGroupsParent[] = "stackGroups";
constexpr char kHangGroupsParent[] = "stackGroups of hangs";

// As many as a group of crashes keeps dumps at most.
constexpr int64_t kMaxNamesOfEachEnd = 500;

struct Amount {
  int64_t dumps = 0;
  int64_t bytes = 0;
};

struct Totals {
  Amount crashes;
  Amount others;
  GroupTotals groups;
  Evictions evicted;
  int64_t dropped = 0;

  Amount& Of(bool is_crash) { return is_crash ? crashes : others; }
  int64_t dumps() const { return crashes.dumps + others.dumps; }
  int64_t bytes() const { return crashes.bytes + others.bytes + groups.bytes; }
};

std::unexpected<Status> NotFound(const std::string& name) {
  return Error(Code::kNotFound, "there is no dump " + name + ": it was deleted, evicted or never made", "DUMP_NOT_FOUND");
}

std::unexpected<Status> BadPageToken() {
  return Error(Code::kInvalidArgument, "page_token is not from an earlier page of the same query", "BAD_PAGE_TOKEN");
}

Result<int> CheckPageSize(int32_t page_size) {
  if (page_size < 0) return Error(Code::kInvalidArgument, "page_size is negative", "BAD_PAGE_SIZE");
  return page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize);
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
  constexpr int kExcluded[] = {v1::Dump::kGroupsFieldNumber,  v1::Dump::kThreadsFieldNumber, v1::Dump::kStacksFieldNumber,
                               v1::Dump::kModulesFieldNumber, v1::Dump::kLinesFieldNumber,   v1::Dump::kTasksFieldNumber,
                               v1::Dump::kReportsFieldNumber};
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
  if (header.has_crash()) header.mutable_crash()->clear_fingerprint_frames();
  if (header.has_hang()) header.mutable_hang()->clear_fingerprint_frames();
  for (v1::Finding& finding : *header.mutable_findings()) {
    // Which threads are concerned may be long.
    finding.clear_details();
    finding.clear_edges();
    finding.clear_tids();
  }
  return header.SerializeAsString();
}

Result<v1::Dump> ParseDump(const std::string& name, const std::string& bytes) {
  v1::Dump dump;
  if (!dump.ParseFromString(bytes)) return Error(Code::kDataLoss, "the dump " + name + " is damaged in the store");
  dump.set_stored(true);
  return dump;
}

// The store, locked. Also a turn of its loop: on a disk that does not answer, the first caller waits for it, and the others
// for the first.
class Access {
 public:
  explicit Access(std::mutex* mutex) : turn_(Loop::kStore), lock_(*mutex) {}

 private:
  const LoopWatch::Turn turn_;
  const std::lock_guard<std::mutex> lock_;
};

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
void MarkUnfinished(bool begun_by_this_daemon, int64_t attempts, v1::Dump* dump) {
  dump->set_state(v1::Dump::PARTIAL);
  if (!begun_by_this_daemon && attempts >= DumpStore::kMaxAttempts) {
    dump->add_notes("stackd ended " + std::to_string(attempts) +
                    " times while it unwound the stacks, so it does not try again: they are stored as they were copied "
                    "(stackctl resymbolize tries once more)");
    return;
  }
  dump->add_notes(begun_by_this_daemon
                      ? "its stacks were copied and stored, but are not unwound yet"
                      : "the daemon ended before the stacks were unwound: they are stored as they were copied");
}

}  // namespace

struct DumpStore::State {
  enum class Step { kRaw, kFinished, kReplaced };
  enum class Refusal { kNone, kDumpIsThere, kDumpIsGone, kCrashIsThere };

  // A row to be written.
  struct Row {
    Step step;
    const v1::Dump& dump;  // its header at least
    std::string header;
    std::string data;  // compressed content or raw capture

    bool is_crash() const { return dump.trigger() == v1::Dump::CRASH; }
    // The fingerprint of a crash or hang that is to be counted; else empty.
    std::string fingerprint() const { return step == Step::kRaw ? std::string() : FingerprintOfEvent(dump); }
  };

  // What is there under its name.
  struct OldRow {
    bool exists = false;
    int64_t bytes = 0;
    int64_t raw_bytes = 0;
    bool is_crash = false;
    std::string fingerprint;
  };

  // The oldest dump of its kind.
  struct Oldest {
    int64_t id = 0;  // 0: there is none
    int64_t bytes = 0;
    int64_t create_seconds = 0;
  };

  explicit State(const DumpStoreOptions& given) : options(given), retention_clock(given.clocks) {}

  // All below: with `mutex` held.

  Result<void> Reopen();
  // Runs `body` (SQLITE_DONE, SQLITE_ROW or SQLITE_OK: good) in a transaction.
  Result<void> Write(const std::function<int(Totals*)>& body);
  // Runs `body`, which reads.
  Result<void> Read(const std::function<int()>& body);
  Result<void> Failed(const char* what, int code);

  // `row`, with its crash id and in its group.
  Result<void> Put(const Row& row);

  // Write bodies: SQLITE_DONE or an error.
  int WriteRow(const Row& row, Refusal* refusal, Totals* totals);
  int ReadOldRow(const std::string& name, OldRow* old);
  int UpsertRow(const Row& row, const OldRow& old, int64_t* id, Totals* totals);
  int CountInGroup(const Row& row, const OldRow& old, int64_t id, Totals* totals);
  int DropBetween(const std::string& fingerprint, int64_t kept_id, Totals* totals);
  int DeleteRow(int64_t id, int64_t bytes, bool is_crash, Totals* totals);
  int Evict(int64_t kept_id, Totals* totals);
  int ReadOldest(bool is_crash, int64_t kept_id, Oldest* oldest);
  // nullptr: the limits are kept.
  // `reason`: the limit that it goes for.
  const Oldest* ToBeEvicted(const Totals& totals, std::optional<int64_t> now_seconds, const Oldest& crash,
                            const Oldest& other, int64_t Evictions::** reason) const;
  void GiveBackFreePages();

  // Read body: the names of the dumps that are kept of the group.
  int AddDumps(v1::CrashGroup* group);

  void EndAttempt(const std::string& name);

  const DumpStoreOptions options;
  std::mutex mutex;
  std::optional<Database> database;  // empty: to be opened again
  // Unfinished dumps above it were begun by this daemon.
  int64_t last_id_at_open = 0;
  std::vector<std::string> problems;
  std::string refusal;  // of the last Put; empty if it was taken
  Totals totals;
  std::set<std::string> attempted;  // names of dumps whose attempt has not ended
  bool is_ending = false;
  RecentDumps recent;
  RetentionClock retention_clock;
};

Result<void> DumpStore::State::Reopen() {
  auto opened = Database::Open(options.file, options.max_bytes, &problems);
  if (!opened) return std::unexpected(opened.error());
  database.emplace(std::move(*opened));
  return Read([this] {
    totals.crashes = totals.others = {};
    last_id_at_open = 0;
    auto dumps = database->Run(
        "SELECT trigger = 3, count(*), total(length(header) + content_bytes + raw_bytes), max(id) FROM dumps"
        " GROUP BY trigger = 3");
    int result;
    while ((result = dumps.Step()) == SQLITE_ROW) {
      totals.Of(dumps.Integer(0) != 0) = {dumps.Integer(1), dumps.Integer(2)};
      last_id_at_open = std::max(last_id_at_open, dumps.Integer(3));
    }
    if (result != SQLITE_DONE) return result;
    auto groups = database->Run("SELECT count(*), total(length(data)) FROM stack_groups");
    result = groups.Step();
    if (result == SQLITE_ROW) totals.groups = {groups.Integer(0), groups.Integer(1)};
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
    totals.crashes = totals.others = {};
    totals.groups = {};
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

int DumpStore::State::ReadOldRow(const std::string& name, OldRow* old) {
  auto query = database->Run(
      "SELECT length(header) + content_bytes + raw_bytes, raw_bytes, trigger = 3, fingerprint FROM dumps WHERE name = ?");
  const int result = query.BindText(1, name).Step();
  if (result != SQLITE_ROW) return result;
  *old = {true, query.Integer(0), query.Integer(1), query.Integer(2) != 0, query.Bytes(3)};
  return SQLITE_DONE;
}

int DumpStore::State::WriteRow(const Row& row, Refusal* refusal, Totals* after) {
  OldRow old;
  if (const int result = ReadOldRow(row.dump.name(), &old); result != SQLITE_DONE) return result;
  *refusal = old.exists && row.step == Step::kRaw         ? Refusal::kDumpIsThere
             : !old.exists && row.step == Step::kReplaced ? Refusal::kDumpIsGone
                                                          : Refusal::kNone;
  if (*refusal != Refusal::kNone) return SQLITE_DONE;
  if (const std::string& crash_id = row.dump.crash().id(); !crash_id.empty()) {
    bool is_taken;
    const int result = ClaimCrash(&*database, crash_id, row.dump.name(), &is_taken);
    if (result != SQLITE_DONE) return result;
    if (is_taken) {
      *refusal = Refusal::kCrashIsThere;
      return SQLITE_DONE;
    }
  }
  int64_t id = 0;
  if (const int result = UpsertRow(row, old, &id, after); result != SQLITE_DONE) return result;
  if (const int result = CountInGroup(row, old, id, after); result != SQLITE_DONE) return result;
  return Evict(id, after);
}

int DumpStore::State::UpsertRow(const Row& row, const OldRow& old, int64_t* id, Totals* after) {
  const bool finished = row.step != Step::kRaw;
  const int64_t data_bytes = std::ssize(row.data);
  const int64_t content_bytes = finished ? data_bytes : 0;
  const int64_t raw_bytes = finished ? old.raw_bytes : data_bytes;
  const std::string fingerprint = row.fingerprint();
  {
    auto put = database->Run(
        "INSERT INTO dumps(name, process, display_name, create_seconds, finished, content_bytes, raw_bytes, header, "
        "trigger,"
        " fingerprint) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(name) DO UPDATE SET display_name = excluded.display_name, create_seconds = excluded.create_seconds,"
        " finished = excluded.finished, content_bytes = excluded.content_bytes, raw_bytes = excluded.raw_bytes,"
        " header = excluded.header, trigger = excluded.trigger, fingerprint = excluded.fingerprint RETURNING id");
    put.BindText(1, row.dump.name()).BindText(2, ProcessOfDump(row.dump.name()));
    put.BindText(3, row.dump.process().display_name()).Bind(4, row.dump.create_time().seconds()).Bind(5, finished);
    put.Bind(6, content_bytes).Bind(7, raw_bytes).BindBlob(8, row.header).Bind(9, row.dump.trigger());
    put.BindText(10, fingerprint);
    const int result = put.Step();
    if (result != SQLITE_ROW) return result;
    *id = put.Integer(0);
    if (const int end = put.Step(); end != SQLITE_DONE) return end;
  }
  {
    auto put = database->Run(finished ? "INSERT OR REPLACE INTO contents(id, data) VALUES(?, ?)"
                                      : "INSERT OR REPLACE INTO raw_captures(id, data) VALUES(?, ?)");
    const int result = put.Bind(1, *id).BindBlob(2, row.data).Step();
    if (result != SQLITE_DONE) return result;
  }
  if (old.exists) {
    after->Of(old.is_crash).dumps -= 1;
    after->Of(old.is_crash).bytes -= old.bytes;
  }
  after->Of(row.is_crash()).dumps += 1;
  after->Of(row.is_crash()).bytes += std::ssize(row.header) + content_bytes + raw_bytes;
  return SQLITE_DONE;
}

int DumpStore::State::CountInGroup(const Row& row, const OldRow& old, int64_t id, Totals* after) {
  const std::string fingerprint = row.fingerprint();
  if (fingerprint == old.fingerprint) return SQLITE_DONE;
  if (!old.fingerprint.empty()) {
    const int result = UncountEvent(&*database, old.fingerprint, row.dump.process().display_name(), &after->groups);
    if (result != SQLITE_DONE) return result;
  }
  if (fingerprint.empty()) return SQLITE_DONE;
  int result = CountEvent(&*database, row.dump, id, &after->groups);
  if (result == SQLITE_DONE) result = EvictGroups(&*database, options.max_bytes / kShareOfGroups, &after->groups);
  // The rules' limits bound how many dumps of hangs there are.
  if (result == SQLITE_DONE && row.is_crash()) result = DropBetween(fingerprint, id, after);
  return result;
}

// Keeps the first and the last dumps of the group.
int DumpStore::State::DropBetween(const std::string& fingerprint, int64_t kept_id, Totals* after) {
  const int64_t kept_of_each_end = std::max<int64_t>(options.crashes_per_group, 1);
  for (int i = 0; i < kMaxEvictionsPerWrite; ++i) {
    int64_t id, bytes;
    {
      // The dump just written stays, though others of its group may have been finished before it.
      auto between = database->Run(
          "SELECT id, length(header) + content_bytes + raw_bytes,"
          " (SELECT count(*) FROM dumps WHERE fingerprint = ?1 AND fingerprint <> '')"
          " FROM dumps WHERE fingerprint = ?1 AND fingerprint <> '' AND id <> ?2 ORDER BY id LIMIT 1 OFFSET ?3");
      const int result = between.BindText(1, fingerprint).Bind(2, kept_id).Bind(3, kept_of_each_end).Step();
      if (result != SQLITE_ROW) return result;
      if (between.Integer(2) <= 2 * kept_of_each_end) return SQLITE_DONE;
      id = between.Integer(0);
      bytes = between.Integer(1);
    }
    if (const int result = DeleteRow(id, bytes, /*is_crash=*/true, after); result != SQLITE_DONE) return result;
    ++after->dropped;
  }
  return SQLITE_DONE;
}

int DumpStore::State::DeleteRow(int64_t id, int64_t bytes, bool is_crash, Totals* after) {
  for (const char* sql :
       {"DELETE FROM dumps WHERE id = ?", "DELETE FROM contents WHERE id = ?", "DELETE FROM raw_captures WHERE id = ?"}) {
    const int result = database->Run(sql).Bind(1, id).Step();
    if (result != SQLITE_DONE) return result;
  }
  --after->Of(is_crash).dumps;
  after->Of(is_crash).bytes -= bytes;
  return SQLITE_DONE;
}

int DumpStore::State::ReadOldest(bool is_crash, int64_t kept_id, Oldest* oldest) {
  auto query = database->Run(
      "SELECT id, length(header) + content_bytes + raw_bytes, create_seconds FROM dumps WHERE (trigger = 3) = ? AND id <> ?"
      " ORDER BY id LIMIT 1");
  const int result = query.Bind(1, is_crash).Bind(2, kept_id).Step();
  if (result != SQLITE_ROW) return result;
  *oldest = {query.Integer(0), query.Integer(1), query.Integer(2)};
  return SQLITE_DONE;
}

const DumpStore::State::Oldest* DumpStore::State::ToBeEvicted(const Totals& after, std::optional<int64_t> now_seconds,
                                                              const Oldest& crash, const Oldest& other,
                                                              int64_t Evictions::** reason) const {
  *reason = &Evictions::age;
  for (const Oldest* oldest : {&other, &crash}) {
    if (oldest->id != 0 && now_seconds && oldest->create_seconds < *now_seconds - options.max_age_seconds) return oldest;
  }
  const bool too_many = after.dumps() > options.max_dumps, too_large = after.bytes() > options.max_bytes;
  if (!too_many && !too_large) return nullptr;
  *reason = too_many ? &Evictions::count : &Evictions::bytes;
  // A crash cannot be had again, a dump on request can. But a store full of crashes must not lose a dump that a caller just
  // asked for.
  const bool others_have_their_share = too_many ? after.others.dumps <= options.max_dumps / kShareOfOthers
                                                : after.others.bytes <= options.max_bytes / kShareOfOthers;
  if (crash.id != 0 && (other.id == 0 || others_have_their_share)) return &crash;
  return other.id != 0 ? &other : nullptr;
}

int DumpStore::State::Evict(int64_t kept_id, Totals* after) {
  std::optional<int64_t> now_seconds;
  if (const int result = retention_clock.Look(&*database, kept_id, &now_seconds); result != SQLITE_DONE) return result;
  for (int i = 0; i < kMaxEvictionsPerWrite; ++i) {
    Oldest crash, other;
    int result = ReadOldest(true, kept_id, &crash);
    if (result == SQLITE_DONE) result = ReadOldest(false, kept_id, &other);
    if (result != SQLITE_DONE) return result;
    int64_t Evictions::* reason = nullptr;
    const Oldest* oldest = ToBeEvicted(*after, now_seconds, crash, other, &reason);
    if (oldest == nullptr) return SQLITE_DONE;
    result = DeleteRow(oldest->id, oldest->bytes, oldest == &crash, after);
    if (result != SQLITE_DONE) return result;
    ++(after->evicted.*reason);
  }
  return SQLITE_DONE;
}

Result<void> DumpStore::State::Put(const Row& row) {
  Refusal refusal = Refusal::kNone;
  if (auto put = Write([&](Totals* after) { return WriteRow(row, &refusal, after); }); !put) return put;
  switch (refusal) {
    case Refusal::kNone:
      return {};
    case Refusal::kDumpIsThere:
      return Error(Code::kAlreadyExists, "the dump " + row.dump.name() + " is there already");
    case Refusal::kDumpIsGone:
      return NotFound(row.dump.name());
    case Refusal::kCrashIsThere:
      return Error(Code::kAlreadyExists, "the crash " + row.dump.crash().id() + " was stored before, as another dump",
                   "CRASH_ALREADY_STORED");
  }
  return {};
}

int DumpStore::State::AddDumps(v1::CrashGroup* group) {
  auto names = database->Run(
      "SELECT name FROM ("
      " SELECT * FROM (SELECT id, name FROM dumps WHERE fingerprint = ?1 AND fingerprint <> '' ORDER BY id LIMIT ?2)"
      " UNION"
      " SELECT * FROM (SELECT id, name FROM dumps WHERE fingerprint = ?1 AND fingerprint <> '' ORDER BY id DESC LIMIT ?2))"
      " ORDER BY id");
  names.BindText(1, group->fingerprint()).Bind(2, kMaxNamesOfEachEnd);
  int result;
  while ((result = names.Step()) == SQLITE_ROW) group->add_dumps(names.Bytes(0));
  return result;
}

void DumpStore::State::EndAttempt(const std::string& name) {
  attempted.erase(name);
  // What cannot be written now counts as an attempt: the dump is tried once less.
  (void)Write([&](Totals*) {
    return database->Run("UPDATE dumps SET attempts = attempts - 1 WHERE name = ? AND NOT finished AND attempts > 0")
        .BindText(1, name)
        .Step();
  });
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
  const State::Row row{State::Step::kRaw, header, SerializeHeader(header), std::move(*data)};
  const Access access(&state_->mutex);
  return state_->Put(row);
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

Result<void> DumpStore::Put(PackedDump packed) { return PutFinished(std::move(packed), /*only_if_there=*/false); }

Result<void> DumpStore::Replace(PackedDump packed) { return PutFinished(std::move(packed), /*only_if_there=*/true); }

Result<void> DumpStore::PutFinished(PackedDump packed, bool only_if_there) {
  const State::Row row{only_if_there ? State::Step::kReplaced : State::Step::kFinished, *packed.dump,
                       std::move(packed.header), std::move(packed.content)};
  const Access access(&state_->mutex);
  auto put = state_->Put(row);
  // Only what an operator has to do something about.
  state_->refusal = !put && put.error().code == Code::kUnavailable ? put.error().message : "";
  if (!put) return put;
  state_->attempted.erase(packed.dump->name());
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
  int64_t attempts = 0;
  std::string header, data;
  {
    const Access access(&state_->mutex);
    auto read = state_->Read([&] {
      auto query = state_->database->Run(
          "SELECT dumps.id, finished, header, data, attempts FROM dumps LEFT JOIN contents ON contents.id = dumps.id"
          " WHERE name = ?");
      const int result = query.BindText(1, name).Step();
      found = result == SQLITE_ROW;
      if (found) {
        begun_by_this_daemon = query.Integer(0) > state_->last_id_at_open;
        finished = query.Integer(1) != 0;
        (finished ? data : header) = query.Bytes(finished ? 3 : 2);
        attempts = query.Integer(4);
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
  if (dump) MarkUnfinished(begun_by_this_daemon, attempts, &*dump);
  return dump;
}

Result<std::shared_ptr<const v1::Dump>> DumpStore::Find(const std::string& name) const {
  {
    const Access access(&state_->mutex);
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
    const Access access(&state_->mutex);
    auto read = state_->Read([&] {
      auto query = state_->database->Run(
          "SELECT data FROM dumps LEFT JOIN raw_captures ON raw_captures.id = dumps.id WHERE name = ?");
      const int result = query.BindText(1, name).Step();
      found = result == SQLITE_ROW;
      if (found) data = query.Bytes(0);
      return result;
    });
    if (!read) return std::unexpected(read.error());
  }
  if (!found) return NotFound(name);
  if (data.empty()) {
    return Error(Code::kFailedPrecondition, "the stacks of " + name + " as they were copied are not stored any more",
                 "RAW_CAPTURE_GONE");
  }
  return Decompress(data);
}

Result<std::string> DumpStore::Newest() const {
  std::string name;
  const Access access(&state_->mutex);
  auto read = state_->Read([&] {
    // A dump that is being unwound at this moment is the newest only if there is no other.
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

std::vector<std::string> DumpStore::Unfinished() const { return LeftByOthers(0, kCarefulAttempts - 1); }

std::vector<std::string> DumpStore::UnfinishedAndSuspect() const {
  return LeftByOthers(kCarefulAttempts, kMaxAttempts - 1);
}

std::vector<std::string> DumpStore::SetAside() const {
  return LeftByOthers(kMaxAttempts, std::numeric_limits<int64_t>::max());
}

Result<void> DumpStore::NoteAttempt(const std::string& name) {
  const Access access(&state_->mutex);
  if (state_->is_ending) return {};
  state_->attempted.insert(name);
  return state_->Write([&](Totals*) {
    return state_->database->Run("UPDATE dumps SET attempts = attempts + 1 WHERE name = ? AND NOT finished")
        .BindText(1, name)
        .Step();
  });
}

void DumpStore::EndAttempt(const std::string& name) {
  const Access access(&state_->mutex);
  state_->EndAttempt(name);
}

void DumpStore::EndAttempts() {
  const Access access(&state_->mutex);
  state_->is_ending = true;
  while (!state_->attempted.empty()) state_->EndAttempt(std::string(*state_->attempted.begin()));
}

std::vector<std::string> DumpStore::LeftByOthers(int64_t min_attempts, int64_t max_attempts) const {
  std::vector<std::string> names;
  const Access access(&state_->mutex);
  // A store that cannot be read says so elsewhere, at the next dump.
  (void)state_->Read([&] {
    auto query = state_->database->Run(
        "SELECT name FROM dumps WHERE NOT finished AND id <= ? AND attempts BETWEEN ? AND ? ORDER BY id");
    query.Bind(1, state_->last_id_at_open).Bind(2, min_attempts).Bind(3, max_attempts);
    int result;
    while ((result = query.Step()) == SQLITE_ROW) names.push_back(query.Bytes(0));
    return result;
  });
  return names;
}

Result<DumpPage> DumpStore::List(const DumpQuery& query) const {
  const auto page_size = CheckPageSize(query.page_size);
  if (!page_size) return std::unexpected(page_size.error());
  const std::string parent = query.parent == "processes/-" ? "" : query.parent;
  if (!parent.empty()) {
    if (auto named = CheckProcessName(parent); !named) return std::unexpected(named.error());
  }

  DumpPage page;
  const Access access(&state_->mutex);
  bool bad_token = false;
  Result<void> damaged;
  auto read = state_->Read([&] {
    const PageQuery token_query{state_->database->store_id(), parent, query.filter, query.trigger};
    int64_t before_id = std::numeric_limits<int64_t>::max();
    if (!query.page_token.empty()) {
      const auto position = DecodePageToken(token_query, query.page_token);
      bad_token = !position.has_value();
      if (bad_token) return SQLITE_DONE;
      before_id = *position;
    }
    auto rows = state_->database->Run(
        parent.empty() ? "SELECT id, finished, name, header, attempts FROM dumps WHERE id < ? AND instr(display_name, ?)"
                         " AND ?3 IN (0, trigger) ORDER BY id DESC"
                       : "SELECT id, finished, name, header, attempts FROM dumps WHERE id < ? AND instr(display_name, ?)"
                         " AND ?3 IN (0, trigger) AND process = ? ORDER BY id DESC");
    rows.Bind(1, before_id).BindText(2, query.filter).Bind(3, query.trigger);
    if (!parent.empty()) rows.BindText(4, parent);
    size_t page_bytes = 0;
    int64_t last_id = 0;
    int result;
    while ((result = rows.Step()) == SQLITE_ROW) {
      const std::string header = rows.Bytes(3);
      const bool full = std::ssize(page.dumps) == *page_size || page_bytes + header.size() > kMaxPageBytes;
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
        MarkUnfinished(last_id > state_->last_id_at_open, rows.Integer(4), &*dump);
      }
      page.dumps.push_back(std::move(*dump));
    }
    return result;
  });
  if (!read) return std::unexpected(read.error());
  if (bad_token) return BadPageToken();
  return page;
}

Result<void> DumpStore::Delete(const std::string& name) {
  if (auto named = CheckDumpName(name); !named) return named;
  const Access access(&state_->mutex);
  bool found = false;
  auto deleted = state_->Write([&](Totals* after) {
    int64_t id = 0, bytes = 0;
    bool is_crash = false;
    {
      auto query = state_->database->Run(
          "SELECT id, length(header) + content_bytes + raw_bytes, trigger = 3 FROM dumps WHERE name = ?");
      const int result = query.BindText(1, name).Step();
      found = result == SQLITE_ROW;
      if (!found) return result;
      id = query.Integer(0);
      bytes = query.Integer(1);
      is_crash = query.Integer(2) != 0;
    }
    return state_->DeleteRow(id, bytes, is_crash, after);
  });
  if (!deleted) return deleted;
  if (!found) return NotFound(name);
  return {};
}

Result<GroupPage> DumpStore::ListGroups(const GroupQuery& query) const {
  const auto page_size = CheckPageSize(query.page_size);
  if (!page_size) return std::unexpected(page_size.error());
  GroupPage page;
  const Access access(&state_->mutex);
  bool bad_token = false;
  auto read = state_->Read([&] {
    const char* parent = query.kind == v1::CrashGroup::HANG ? kHangGroupsParent : kCrashGroupsParent;
    const PageQuery token_query{state_->database->store_id(), parent, query.filter};
    int64_t before_id = std::numeric_limits<int64_t>::max();
    if (!query.page_token.empty()) {
      const auto position = DecodePageToken(token_query, query.page_token);
      bad_token = !position.has_value();
      if (bad_token) return SQLITE_DONE;
      before_id = *position;
    }
    auto rows = state_->database->Run("SELECT id, data FROM stack_groups WHERE id < ? ORDER BY id DESC");
    rows.Bind(1, before_id);
    size_t page_bytes = 0;
    int64_t last_id = 0;
    int result;
    while ((result = rows.Step()) == SQLITE_ROW) {
      v1::CrashGroup group = ParseGroup(rows.Bytes(1));
      if (group.kind() != query.kind || !GroupHolds(group, query.filter)) continue;
      group.clear_fingerprint_frames();
      if (const int named = state_->AddDumps(&group); named != SQLITE_DONE) return named;
      page_bytes += group.ByteSizeLong();
      const bool full = std::ssize(page.groups) == *page_size || page_bytes > kMaxPageBytes;
      if (full && !page.groups.empty()) {
        page.next_page_token = EncodePageToken(token_query, last_id);
        return SQLITE_DONE;
      }
      last_id = rows.Integer(0);
      page.groups.push_back(std::move(group));
    }
    return result;
  });
  if (!read) return std::unexpected(read.error());
  if (bad_token) return BadPageToken();
  return page;
}

Result<v1::CrashGroup> DumpStore::GetGroup(const std::string& name) const {
  std::string fingerprint;
  if (!name.empty()) {
    auto checked = FingerprintOfGroup(name);
    if (!checked) return std::unexpected(checked.error());
    fingerprint = *checked;
  }
  v1::CrashGroup group;
  bool found = false;
  const Access access(&state_->mutex);
  auto read = state_->Read([&] {
    {
      auto query = state_->database->Run(fingerprint.empty() ? "SELECT data FROM stack_groups ORDER BY last_dump_id DESC"
                                                             : "SELECT data FROM stack_groups WHERE fingerprint = ?");
      if (!fingerprint.empty()) query.BindText(1, fingerprint);
      int result;
      while (!found && (result = query.Step()) == SQLITE_ROW) {
        group = ParseGroup(query.Bytes(0));
        found = !fingerprint.empty() || group.kind() == v1::CrashGroup::CRASH;
      }
      if (!found) return result;
    }
    return state_->AddDumps(&group);
  });
  if (!read) return std::unexpected(read.error());
  if (found) return group;
  return Error(Code::kNotFound, name.empty() ? "there is no crash yet" : "there is no group " + name, "GROUP_NOT_FOUND");
}

int64_t DumpStore::dump_count() const {
  const Access access(&state_->mutex);
  return state_->totals.dumps();
}

int64_t DumpStore::bytes() const {
  const Access access(&state_->mutex);
  return state_->totals.bytes();
}

int64_t DumpStore::max_bytes() const { return state_->options.max_bytes; }

int64_t DumpStore::evicted_count() const {
  const Access access(&state_->mutex);
  return state_->totals.evicted.total();
}

Evictions DumpStore::evictions() const {
  const Access access(&state_->mutex);
  return state_->totals.evicted;
}

int64_t DumpStore::dropped_count() const {
  const Access access(&state_->mutex);
  return state_->totals.dropped;
}

std::vector<std::string> DumpStore::Problems() const {
  const Access access(&state_->mutex);
  std::vector<std::string> problems = state_->problems;
  if (!state_->refusal.empty()) problems.push_back("the last dump could not be stored: " + state_->refusal);
  return problems;
}

}  // namespace stackd
