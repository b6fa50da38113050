#include "daemon/store/crash_groups.h"

#include <algorithm>
#include <tuple>

#include "daemon/base/text.h"
#include "daemon/store/dump_name.h"

namespace stackd {
namespace {

constexpr std::string_view kStackGroups = "stackGroups/";

// Hostile processes crash as they like: rows are bounded in size and number.
constexpr int64_t kMaxGroups = 10'000;
constexpr int kMaxEvictionsPerWrite = 64;
constexpr int kMaxProcesses = 16;
constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxFramesBytes = 12 << 10;

std::string Shortened(std::string_view text) {
  if (text.size() <= kMaxTextBytes) return std::string(text);
  // Not in the middle of a character.
  size_t end = kMaxTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return ToValidUtf8(text.substr(0, end)) + "…";
}

bool Earlier(const google::protobuf::Timestamp& a, const google::protobuf::Timestamp& b) {
  return std::tuple(a.seconds(), a.nanos()) < std::tuple(b.seconds(), b.nanos());
}

// -1 if it is not listed.
int IndexOfProcess(const v1::CrashGroup& group, const std::string& display_name) {
  for (int i = 0; i < group.processes_size(); ++i) {
    if (group.processes(i).display_name() == display_name) return i;
  }
  return -1;
}

void CountProcess(const std::string& display_name, v1::CrashGroup* group) {
  int index = IndexOfProcess(*group, display_name);
  if (index < 0 && group->processes_size() < kMaxProcesses) {
    index = group->processes_size();
    group->add_processes()->set_display_name(display_name);
  }
  if (index < 0) {
    group->set_other_process_crash_count(group->other_process_crash_count() + 1);
    return;
  }
  v1::CrashGroup::ProcessCount* process = group->mutable_processes(index);
  process->set_crash_count(process->crash_count() + 1);
}

void UncountProcess(const std::string& display_name, v1::CrashGroup* group) {
  const int index = IndexOfProcess(*group, display_name);
  if (index < 0) {
    group->set_other_process_crash_count(std::max<int64_t>(group->other_process_crash_count() - 1, 0));
    return;
  }
  v1::CrashGroup::ProcessCount* process = group->mutable_processes(index);
  process->set_crash_count(process->crash_count() - 1);
  if (process->crash_count() <= 0) group->mutable_processes()->DeleteSubrange(index, 1);
}

// What the group's fingerprint is made of, as far as there is room.
void DescribeFingerprint(const google::protobuf::RepeatedPtrField<v1::FingerprintFrame>& frames, v1::CrashGroup* group) {
  group->clear_fingerprint_frames();
  group->clear_top_function();
  size_t bytes = 0;
  for (const v1::FingerprintFrame& frame : frames) {
    v1::FingerprintFrame shortened = frame;
    shortened.set_function(Shortened(frame.function()));
    shortened.set_module(Shortened(frame.module()));
    shortened.set_rule(Shortened(frame.rule()));
    if (frame.used() && group->top_function().empty()) {
      group->set_top_function(shortened.function().empty() ? shortened.module() : shortened.function());
    }
    bytes += shortened.ByteSizeLong();
    if (bytes > kMaxFramesBytes) return;
    *group->add_fingerprint_frames() = std::move(shortened);
  }
}

template <typename CrashOrHang>
void Add(const v1::Dump& dump, const CrashOrHang& event, v1::CrashGroup* group) {
  group->set_fingerprint(event.fingerprint());
  group->set_name(std::string(kStackGroups) + event.fingerprint());
  group->set_crash_count(group->crash_count() + 1);
  CountProcess(Shortened(dump.process().display_name()), group);
  if (!group->has_first_seen_time() || Earlier(dump.create_time(), group->first_seen_time())) {
    *group->mutable_first_seen_time() = dump.create_time();
  }
  // They are not always finished in the order in which they happened.
  if (group->has_last_seen_time() && Earlier(dump.create_time(), group->last_seen_time())) return;
  *group->mutable_last_seen_time() = dump.create_time();
  group->set_fingerprint_rule(event.fingerprint_rule());
  group->set_explanation(Shortened(event.explanation()));
  DescribeFingerprint(event.fingerprint_frames(), group);
}

struct GroupRow {
  int64_t id = 0;  // 0: there is none
  std::string data;
};

int ReadRow(Database* database, const std::string& fingerprint, GroupRow* row) {
  auto query = database->Run("SELECT id, data FROM stack_groups WHERE fingerprint = ?");
  const int result = query.BindText(1, fingerprint).Step();
  if (result != SQLITE_ROW) return result;
  row->id = query.Integer(0);
  row->data = query.Bytes(1);
  return SQLITE_DONE;
}

int WriteRow(Database* database, const GroupRow& row, const std::string& data, GroupTotals* totals) {
  const int result =
      database->Run("UPDATE stack_groups SET data = ? WHERE id = ?").BindBlob(1, data).Bind(2, row.id).Step();
  totals->bytes += std::ssize(data) - std::ssize(row.data);
  return result;
}

int DeleteRow(Database* database, int64_t id, int64_t bytes, GroupTotals* totals) {
  --totals->groups;
  totals->bytes -= bytes;
  return database->Run("DELETE FROM stack_groups WHERE id = ?").Bind(1, id).Step();
}

v1::CrashGroup ParseGroup(const std::string& data) {
  v1::CrashGroup group;
  // A damaged one begins anew: its crashes are worth more than an error that every later crash would meet.
  if (!group.ParseFromString(data)) group.Clear();
  if (group.kind() == v1::CrashGroup::KIND_UNSPECIFIED) group.set_kind(v1::CrashGroup::CRASH);
  std::stable_sort(group.mutable_processes()->begin(), group.mutable_processes()->end(),
                   [](const auto& a, const auto& b) { return a.crash_count() > b.crash_count(); });
  return group;
}

}  // namespace

const std::string& FingerprintOfEvent(const v1::Dump& dump) {
  return dump.trigger() == v1::Dump::CRASH ? dump.crash().fingerprint() : dump.hang().fingerprint();
}

int CountEvent(Database* database, const v1::Dump& dump, int64_t dump_id, GroupTotals* totals) {
  const std::string& fingerprint = FingerprintOfEvent(dump);
  GroupRow row;
  if (const int result = ReadRow(database, fingerprint, &row); result != SQLITE_DONE) return result;
  v1::CrashGroup group = ParseGroup(row.data);
  if (dump.trigger() == v1::Dump::CRASH) {
    group.set_kind(v1::CrashGroup::CRASH);
    Add(dump, dump.crash(), &group);
  } else {
    group.set_kind(v1::CrashGroup::HANG);
    Add(dump, dump.hang(), &group);
  }
  const std::string data = group.SerializeAsString();
  auto put = database->Run(
      "INSERT INTO stack_groups(fingerprint, last_dump_id, data) VALUES(?1, ?2, ?3)"
      " ON CONFLICT(fingerprint) DO UPDATE SET last_dump_id = max(last_dump_id, ?2), data = ?3");
  put.BindText(1, fingerprint).Bind(2, dump_id).BindBlob(3, data);
  totals->groups += row.id == 0 ? 1 : 0;
  totals->bytes += std::ssize(data) - std::ssize(row.data);
  return put.Step();
}

int UncountEvent(Database* database, const std::string& fingerprint, const std::string& display_name, GroupTotals* totals) {
  GroupRow row;
  if (const int result = ReadRow(database, fingerprint, &row); result != SQLITE_DONE || row.id == 0) return result;
  v1::CrashGroup group = ParseGroup(row.data);
  if (group.crash_count() <= 1) return DeleteRow(database, row.id, std::ssize(row.data), totals);
  group.set_crash_count(group.crash_count() - 1);
  UncountProcess(Shortened(display_name), &group);
  return WriteRow(database, row, group.SerializeAsString(), totals);
}

int EvictGroups(Database* database, int64_t max_bytes, GroupTotals* totals) {
  for (int i = 0; i < kMaxEvictionsPerWrite; ++i) {
    if (totals->groups <= 1 || (totals->groups <= kMaxGroups && totals->bytes <= max_bytes)) break;
    int64_t id, bytes;
    {
      auto oldest = database->Run("SELECT id, length(data) FROM stack_groups ORDER BY last_dump_id LIMIT 1");
      const int result = oldest.Step();
      if (result != SQLITE_ROW) return result;
      id = oldest.Integer(0);
      bytes = oldest.Integer(1);
    }
    if (const int result = DeleteRow(database, id, bytes, totals); result != SQLITE_DONE) return result;
  }
  return SQLITE_DONE;
}

int ReadGroupTotals(Database* database, GroupTotals* totals) {
  auto query = database->Run("SELECT count(*), total(length(data)) FROM stack_groups");
  const int result = query.Step();
  if (result == SQLITE_ROW) *totals = {query.Integer(0), query.Integer(1)};
  return result;
}

int FindGroup(Database* database, const std::string& fingerprint, v1::CrashGroup* group, bool* found) {
  const bool of_newest = fingerprint.empty();
  auto query = database->Run(of_newest ? "SELECT data FROM stack_groups ORDER BY last_dump_id DESC"
                                       : "SELECT data FROM stack_groups WHERE fingerprint = ?");
  if (!of_newest) query.BindText(1, fingerprint);
  int result;
  while (!*found && (result = query.Step()) == SQLITE_ROW) {
    *group = ParseGroup(query.Bytes(0));
    *found = !of_newest || group->kind() == v1::CrashGroup::CRASH;
  }
  return *found ? SQLITE_DONE : result;
}

int ListGroups(Database* database, int64_t before_id, const std::function<int(int64_t id, v1::CrashGroup)>& take) {
  auto query = database->Run("SELECT id, data FROM stack_groups WHERE id < ? ORDER BY id DESC");
  query.Bind(1, before_id);
  int result;
  while ((result = query.Step()) == SQLITE_ROW) {
    result = take(query.Integer(0), ParseGroup(query.Bytes(1)));
    if (result != SQLITE_ROW) break;
  }
  return result;
}

bool GroupHolds(const v1::CrashGroup& group, std::string_view part) {
  const auto holds = [&](std::string_view text) { return text.find(part) != text.npos; };
  return holds(group.explanation()) || holds(group.top_function()) ||
         std::any_of(group.processes().begin(), group.processes().end(),
                     [&](const auto& process) { return holds(process.display_name()); });
}

Result<std::string> FingerprintOfGroup(std::string_view name) {
  std::string_view fingerprint = name;
  if (fingerprint.starts_with(kStackGroups)) fingerprint.remove_prefix(kStackGroups.size());
  if (IsResourceId(fingerprint)) return std::string(fingerprint);
  return Error(Code::kInvalidArgument, Quoted(name) + " is not the name of a group: expected \"stackGroups/{fingerprint}\"",
               "BAD_NAME");
}

}  // namespace stackd
