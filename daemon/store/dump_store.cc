#include "daemon/store/dump_store.h"

#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "daemon/base/loop_watch.h"
#include "daemon/store/compress.h"
#include "daemon/store/crash_groups.h"
#include "daemon/store/crash_ids.h"
#include "daemon/store/dump_header.h"
#include "daemon/store/dump_name.h"
#include "daemon/store/dump_rows.h"
#include "daemon/store/eviction.h"
#include "daemon/store/page_builder.h"
#include "daemon/store/recent_dumps.h"
#include "daemon/store/retention_clock.h"
#include "daemon/store/transactions.h"

namespace stackd {
namespace {

// What one write may spend on the limits: a store that was given smaller ones shrinks over many writes.
constexpr int kMaxEvictionsPerWrite = 64;
constexpr int64_t kShareOfGroups = 8;

// Page tokens hold one of these.
constexpr char kCrashGroupsParent[] = "stackGroups";
constexpr char kHangGroupsParent[] = "stackGroups of hangs";

// As many as a group of crashes keeps dumps at most.
constexpr int64_t kMaxNamesOfEachEnd = 500;

std::unexpected<Status> NotFound(const std::string& name) {
  return Error(Code::kNotFound, "there is no dump " + name + ": it was deleted, evicted or never made", "DUMP_NOT_FOUND");
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

// A write body.
int Remove(Database* database, const DumpRow& dump, Totals* after) {
  after->Of(dump.is_crash) -= {1, dump.bytes};
  return DeleteDump(database, dump.id);
}

}  // namespace

struct DumpStore::State {
  enum class Step { kRaw, kFinished, kReplaced };

  explicit State(const DumpStoreOptions& given) : options(given), transactions(given), retention_clock(given.clocks) {}

  // All below: with `mutex` held.

  // Writes `row`, with its crash id and in its group.
  Result<void> Put(Step step, const NewRow& row);

  // Write bodies: SQLITE_DONE or an error.
  int WriteRow(Database* database, Step step, const NewRow& row, Result<void>* refusal, Totals* after);
  int CountInGroup(Database* database, const NewRow& row, const DumpRow& old, const DumpRow& written, Totals* after);
  int DropBetween(Database* database, const std::string& fingerprint, int64_t kept_id, Totals* after);
  int Evict(Database* database, int64_t kept_id, Totals* after);

  void EndAttempt(const std::string& name);

  // Reads a page of a list. `body` takes its elements as long as they have room; gives the token of the next page.
  Result<std::string> ReadPage(const PageQuery& query, const std::function<int(Database*, PageBuilder*)>& body);

  const DumpStoreOptions options;
  std::mutex mutex;
  Transactions transactions;
  std::string refusal;              // of the last Put; empty if it was taken
  std::set<std::string> attempted;  // names of dumps whose attempt has not ended
  bool is_ending = false;
  RecentDumps recent;
  RetentionClock retention_clock;
};

Result<void> DumpStore::State::Put(Step step, const NewRow& row) {
  Result<void> refusal;
  auto put =
      transactions.Write([&](Database* database, Totals* after) { return WriteRow(database, step, row, &refusal, after); });
  return put ? refusal : put;
}

int DumpStore::State::WriteRow(Database* database, Step step, const NewRow& row, Result<void>* refusal, Totals* after) {
  const std::string& name = row.dump.name();
  *refusal = {};
  DumpRow old, written;
  int result = FindDump(database, name, &old);
  if (result != SQLITE_DONE) return result;
  if (old.id != 0 && step == Step::kRaw) *refusal = Error(Code::kAlreadyExists, "the dump " + name + " is there already");
  if (old.id == 0 && step == Step::kReplaced) *refusal = NotFound(name);
  if (!*refusal) return SQLITE_DONE;
  if (const std::string& crash_id = row.dump.crash().id(); !crash_id.empty()) {
    bool is_taken;
    if (result = ClaimCrash(database, crash_id, name, &is_taken); result != SQLITE_DONE) return result;
    if (is_taken) {
      *refusal = Error(Code::kAlreadyExists, "the crash " + crash_id + " was stored before, as another dump",
                       "CRASH_ALREADY_STORED");
      return SQLITE_DONE;
    }
  }
  if (result = UpsertDump(database, row, old, &written); result != SQLITE_DONE) return result;
  if (old.id != 0) after->Of(old.is_crash) -= {1, old.bytes};
  after->Of(written.is_crash) += {1, written.bytes};
  if (result = CountInGroup(database, row, old, written, after); result != SQLITE_DONE) return result;
  return Evict(database, written.id, after);
}

int DumpStore::State::CountInGroup(Database* database, const NewRow& row, const DumpRow& old, const DumpRow& written,
                                   Totals* after) {
  if (row.fingerprint == old.fingerprint) return SQLITE_DONE;
  if (!old.fingerprint.empty()) {
    const int result = UncountEvent(database, old.fingerprint, row.dump.process().display_name(), &after->groups);
    if (result != SQLITE_DONE) return result;
  }
  if (row.fingerprint.empty()) return SQLITE_DONE;
  int result = CountEvent(database, row.dump, written.id, &after->groups);
  if (result == SQLITE_DONE) result = EvictGroups(database, options.max_bytes / kShareOfGroups, &after->groups);
  // The rules' limits bound how many dumps of hangs there are.
  if (result == SQLITE_DONE && written.is_crash) result = DropBetween(database, row.fingerprint, written.id, after);
  return result;
}

// Keeps the first and the last dumps of the group, and the one just written, though others may have been finished before
// it.
int DumpStore::State::DropBetween(Database* database, const std::string& fingerprint, int64_t kept_id, Totals* after) {
  const int64_t kept_of_each_end = std::max<int64_t>(options.crashes_per_group, 1);
  for (int i = 0; i < kMaxEvictionsPerWrite; ++i) {
    DumpRow between;
    int result = FindBetween(database, fingerprint, kept_id, kept_of_each_end, &between);
    if (result != SQLITE_DONE || between.id == 0) return result;
    if (result = Remove(database, between, after); result != SQLITE_DONE) return result;
    ++after->dropped;
  }
  return SQLITE_DONE;
}

int DumpStore::State::Evict(Database* database, int64_t kept_id, Totals* after) {
  std::optional<int64_t> now_seconds;
  if (const int result = retention_clock.Look(database, kept_id, &now_seconds); result != SQLITE_DONE) return result;
  for (int i = 0; i < kMaxEvictionsPerWrite; ++i) {
    DumpRow crash, other;
    int result = FindOldest(database, true, kept_id, &crash);
    if (result == SQLITE_DONE) result = FindOldest(database, false, kept_id, &other);
    if (result != SQLITE_DONE) return result;
    const Victim victim = ChooseVictim(options, *after, now_seconds, crash, other);
    if (victim.dump == nullptr) return SQLITE_DONE;
    if (result = Remove(database, *victim.dump, after); result != SQLITE_DONE) return result;
    ++(after->evicted.*victim.limit);
  }
  return SQLITE_DONE;
}

void DumpStore::State::EndAttempt(const std::string& name) {
  attempted.erase(name);
  // What cannot be written now counts as an attempt: the dump is tried once less.
  (void)transactions.Write([&](Database* database, Totals*) { return AddAttempts(database, name, -1); });
}

Result<std::string> DumpStore::State::ReadPage(const PageQuery& query,
                                               const std::function<int(Database*, PageBuilder*)>& body) {
  PageBuilder page(query);
  Result<void> begun;
  auto read = transactions.Read([&](Database* database) {
    begun = page.Begin(database->store_id());
    return begun ? body(database, &page) : SQLITE_DONE;
  });
  if (!read) return std::unexpected(read.error());
  if (!begun) return std::unexpected(begun.error());
  return page.next_page_token();
}

DumpStore::DumpStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
DumpStore::~DumpStore() = default;

Result<std::unique_ptr<DumpStore>> DumpStore::Open(const DumpStoreOptions& options) {
  auto state = std::make_unique<State>(options);
  if (auto opened = state->transactions.Open(); !opened) return std::unexpected(opened.error());
  return std::unique_ptr<DumpStore>(new DumpStore(std::move(state)));
}

Result<void> DumpStore::PutRaw(const v1::Dump& header, const std::string& raw) {
  if (auto named = CheckDumpName(header.name()); !named) return named;
  auto data = Compress(raw);
  if (!data) return std::unexpected(data.error());
  const NewRow row{header, /*is_finished=*/false, SerializeHeader(header), std::move(*data), /*fingerprint=*/""};
  const Access access(&state_->mutex);
  return state_->Put(State::Step::kRaw, row);
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
  const NewRow row{*packed.dump, /*is_finished=*/true, std::move(packed.header), std::move(packed.content),
                   FingerprintOfEvent(*packed.dump)};
  const Access access(&state_->mutex);
  auto put = state_->Put(only_if_there ? State::Step::kReplaced : State::Step::kFinished, row);
  // Only what an operator has to do something about.
  state_->refusal = !put && put.error().code == Code::kUnavailable ? put.error().message : "";
  if (!put) return put;
  state_->attempted.erase(packed.dump->name());
  state_->transactions.GiveBackFreePages();
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
  StoredDump stored;
  std::string content;
  int64_t last_id_at_open = 0;
  {
    const Access access(&state_->mutex);
    auto read = state_->transactions.Read([&](Database* database) { return ReadDump(database, name, &stored, &content); });
    if (!read) return std::unexpected(read.error());
    last_id_at_open = state_->transactions.last_id_at_open();
  }
  if (stored.id == 0) return NotFound(name);
  if (stored.is_finished) {
    const auto bytes = Decompress(content);
    if (!bytes) return Error(Code::kDataLoss, "the dump " + name + " cannot be read: " + bytes.error().message);
    return ParseDump(name, *bytes);
  }
  auto dump = ParseDump(name, stored.header);
  if (dump) MarkUnfinished(stored.id > last_id_at_open, stored.attempts, &*dump);
  return dump;
}

Result<std::shared_ptr<const v1::Dump>> DumpStore::Find(const std::string& name) const {
  {
    const Access access(&state_->mutex);
    if (std::shared_ptr<const v1::Dump> kept = state_->recent.Find(name)) {
      // It may have been deleted or evicted since.
      DumpRow row;
      auto read = state_->transactions.Read([&](Database* database) { return FindDump(database, name, &row); });
      if (read && row.is_finished) return kept;
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
    auto read = state_->transactions.Read([&](Database* database) { return ReadRaw(database, name, &found, &data); });
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
  auto read = state_->transactions.Read(
      [&](Database* database) { return ReadNewest(database, state_->transactions.last_id_at_open(), &name); });
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
  return state_->transactions.Write([&](Database* database, Totals*) { return AddAttempts(database, name, 1); });
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
  (void)state_->transactions.Read([&](Database* database) {
    return ReadUnfinished(database, state_->transactions.last_id_at_open(), min_attempts, max_attempts, &names);
  });
  return names;
}

Result<DumpPage> DumpStore::List(const DumpQuery& query) const {
  const std::string parent = query.parent == "processes/-" ? "" : query.parent;
  if (!parent.empty()) {
    if (auto named = CheckProcessName(parent); !named) return std::unexpected(named.error());
  }
  DumpPage page;
  const Access access(&state_->mutex);
  auto next = state_->ReadPage(
      {parent, query.filter, query.trigger, query.page_size, query.page_token},
      [&](Database* database, PageBuilder* builder) {
        return ListDumps(database, {parent, query.filter, query.trigger}, builder->before_id(), [&](const StoredDump& row) {
          if (!builder->Take(row.id, row.header.size())) return SQLITE_DONE;
          auto dump = ParseDump(row.name, row.header);
          if (!dump) {
            // The others are worth more than a page without a fault.
            dump = v1::Dump();
            dump->set_name(row.name);
            dump->add_notes("it is damaged in the store");
          } else if (!row.is_finished) {
            MarkUnfinished(row.id > state_->transactions.last_id_at_open(), row.attempts, &*dump);
          }
          page.dumps.push_back(std::move(*dump));
          return SQLITE_ROW;
        });
      });
  if (!next) return std::unexpected(next.error());
  page.next_page_token = std::move(*next);
  return page;
}

Result<void> DumpStore::Delete(const std::string& name) {
  if (auto named = CheckDumpName(name); !named) return named;
  const Access access(&state_->mutex);
  DumpRow dump;
  auto deleted = state_->transactions.Write([&](Database* database, Totals* after) {
    dump = {};
    const int result = FindDump(database, name, &dump);
    return result != SQLITE_DONE || dump.id == 0 ? result : Remove(database, dump, after);
  });
  if (!deleted) return deleted;
  if (dump.id == 0) return NotFound(name);
  return {};
}

Result<GroupPage> DumpStore::ListGroups(const GroupQuery& query) const {
  GroupPage page;
  const Access access(&state_->mutex);
  const char* parent = query.kind == v1::CrashGroup::HANG ? kHangGroupsParent : kCrashGroupsParent;
  auto next = state_->ReadPage(
      {.parent = parent, .filter = query.filter, .page_size = query.page_size, .page_token = query.page_token},
      [&](Database* database, PageBuilder* builder) {
        return stackd::ListGroups(database, builder->before_id(), [&](int64_t id, v1::CrashGroup group) {
          if (group.kind() != query.kind || !GroupHolds(group, query.filter)) return SQLITE_ROW;
          group.clear_fingerprint_frames();
          const int named = ReadNamesOfGroup(database, group.fingerprint(), kMaxNamesOfEachEnd, group.mutable_dumps());
          if (named != SQLITE_DONE) return named;
          if (!builder->Take(id, group.ByteSizeLong())) return SQLITE_DONE;
          page.groups.push_back(std::move(group));
          return SQLITE_ROW;
        });
      });
  if (!next) return std::unexpected(next.error());
  page.next_page_token = std::move(*next);
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
  auto read = state_->transactions.Read([&](Database* database) {
    const int result = FindGroup(database, fingerprint, &group, &found);
    if (!found) return result;
    return ReadNamesOfGroup(database, group.fingerprint(), kMaxNamesOfEachEnd, group.mutable_dumps());
  });
  if (!read) return std::unexpected(read.error());
  if (found) return group;
  return Error(Code::kNotFound, name.empty() ? "there is no crash yet" : "there is no group " + name, "GROUP_NOT_FOUND");
}

int64_t DumpStore::dump_count() const {
  const Access access(&state_->mutex);
  return state_->transactions.totals().dumps();
}

int64_t DumpStore::bytes() const {
  const Access access(&state_->mutex);
  return state_->transactions.totals().bytes();
}

int64_t DumpStore::max_bytes() const { return state_->options.max_bytes; }

int64_t DumpStore::evicted_count() const {
  const Access access(&state_->mutex);
  return state_->transactions.totals().evicted.total();
}

Evictions DumpStore::evictions() const {
  const Access access(&state_->mutex);
  return state_->transactions.totals().evicted;
}

int64_t DumpStore::dropped_count() const {
  const Access access(&state_->mutex);
  return state_->transactions.totals().dropped;
}

std::vector<std::string> DumpStore::Problems() const {
  const Access access(&state_->mutex);
  std::vector<std::string> problems = state_->transactions.problems();
  if (!state_->refusal.empty()) problems.push_back("the last dump could not be stored: " + state_->refusal);
  return problems;
}

}  // namespace stackd
