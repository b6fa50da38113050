#include "daemon/store/raw_capture.h"

#include <google/protobuf/arena.h>

#include <limits>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/modules/address_map.h"
#include "daemon/store/packed_records.h"
#include "daemon/store/raw_capture.pb.h"
#include "daemon/store/raw_managed.h"
#include "daemon/store/raw_threads.h"
#include "daemon/store/raw_waits.h"

namespace stackd {
namespace {

constexpr uint32_t kVersion = 2;

// MappingRecord::flags
constexpr uint32_t kReadable = 1, kWritable = 2, kExecutable = 4;

struct MappingRecord {
  uint64_t start_avma;
  uint64_t end_avma;
  uint64_t file_offset;
  uint64_t device;
  uint64_t inode;
  uint64_t bias;
  uint32_t flags;
  uint32_t path;      // index into paths
  uint32_t build_id;  // index into build_ids
  uint32_t reserved;
};
static_assert(sizeof(MappingRecord) == 6 * 8 + 16 && std::has_unique_object_representations_v<MappingRecord>);

// Numbers texts in the order of their first use.
class TextTable {
 public:
  template <typename Add>
  uint32_t IndexOf(const std::string& text, Add add) {
    const auto [entry, is_new] = indices_.emplace(text, static_cast<uint32_t>(indices_.size()));
    if (is_new) add(text);
    return entry->second;
  }

 private:
  std::unordered_map<std::string, uint32_t> indices_;
};

// Fields that have one name and one type in the struct and in its message. One list serves both ways.
#define PROCESS_FIELDS(FIELD)                                                                                  \
  FIELD(id), FIELD(pid), FIELD(uid), FIELD(abi_version), FIELD(display_name), FIELD(executable), FIELD(argv0), \
      FIELD(hostname), FIELD(start_wall_ns), FIELD(connect_wall_ns), FIELD(thread_count)
#define CRASH_FIELDS(FIELD)                                                                                         \
  FIELD(flags), FIELD(tid), FIELD(signal_number), FIELD(signal_code), FIELD(fault_address_avma), FIELD(sender_pid), \
      FIELD(sender_uid), FIELD(trap_error), FIELD(trap_number), FIELD(stack_start_avma), FIELD(stack_end_avma),     \
      FIELD(abort_message), FIELD(exception_type), FIELD(from_spool)
#define HANG_FIELDS(FIELD) \
  FIELD(explanation), FIELD(tid), FIELD(heartbeat), FIELD(duration_ns), FIELD(rule), FIELD(loop_function)
#define TO_MESSAGE(field) raw->set_##field(value.field)
#define FROM_MESSAGE(field) value.field = raw.field()

void SerializeProcess(const ProcessDescription& value, store::RawProcess* raw) {
  PROCESS_FIELDS(TO_MESSAGE);
  raw->set_share(static_cast<int32_t>(value.share));
  for (const std::string& limit : value.limits) raw->add_limits(limit);
  for (const auto& [key, text] : value.resource_attributes) (*raw->mutable_resource_attributes())[key] = text;
}

Share ParseShare(int32_t number) {
  const bool is_known = number >= 0 && number <= static_cast<int32_t>(Share::kMemory);
  return is_known ? static_cast<Share>(number) : Share::kNotSaid;
}

ProcessDescription ParseProcess(const store::RawProcess& raw) {
  ProcessDescription value;
  PROCESS_FIELDS(FROM_MESSAGE);
  value.share = ParseShare(raw.share());
  value.limits.assign(raw.limits().begin(), raw.limits().end());
  value.resource_attributes.insert(raw.resource_attributes().begin(), raw.resource_attributes().end());
  return value;
}

void SerializeCrash(const CrashCapture& value, store::RawCrash* raw) {
  CRASH_FIELDS(TO_MESSAGE);
  raw->set_id_high(value.id[0]);
  raw->set_id_low(value.id[1]);
}

CrashCapture ParseCrash(const store::RawCrash& raw) {
  CrashCapture value;
  CRASH_FIELDS(FROM_MESSAGE);
  value.id = {raw.id_high(), raw.id_low()};
  return value;
}

void SerializeHang(const HangCapture& value, store::RawHang* raw) {
  HANG_FIELDS(TO_MESSAGE);
  raw->set_cause(static_cast<int32_t>(value.cause));
}

// False for an unknown cause.
bool ParseHang(const store::RawHang& raw, HangCapture* hang) {
  if (raw.cause() < static_cast<int32_t>(HangCause::kHeartbeatMissed) ||
      raw.cause() > static_cast<int32_t>(HangCause::kNotGone)) {
    return false;
  }
  HangCapture& value = *hang;
  HANG_FIELDS(FROM_MESSAGE);
  value.cause = static_cast<HangCause>(raw.cause());
  return true;
}

void SerializeMappings(const std::vector<Mapping>& mappings, store::RawCapture* raw) {
  TextTable paths, build_ids;
  raw->mutable_mappings()->reserve(mappings.size() * sizeof(MappingRecord));
  for (const Mapping& mapping : mappings) {
    MappingRecord record{};
    record.start_avma = mapping.start_avma;
    record.end_avma = mapping.end_avma;
    record.file_offset = mapping.file_offset;
    record.device = mapping.device;
    record.inode = mapping.inode;
    record.bias = mapping.bias;
    record.flags =
        (mapping.readable ? kReadable : 0) | (mapping.writable ? kWritable : 0) | (mapping.executable ? kExecutable : 0);
    record.path = paths.IndexOf(mapping.path, [raw](const std::string& path) { raw->add_paths(path); });
    record.build_id = build_ids.IndexOf(mapping.module == nullptr ? "" : mapping.module->build_id(),
                                        [raw](const std::string& build_id) { raw->add_build_ids(HexOfBytes(build_id)); });
    AppendRecord(record, raw->mutable_mappings());
  }
}

std::unexpected<Status> Damaged(const char* what) {
  return Error(Code::kDataLoss, std::string("the raw capture is damaged: ") + what);
}

Result<void> ParseMappings(const store::RawCapture& raw, RawCapture* parsed) {
  PackedRecords records(raw.mappings());
  std::vector<Mapping> mappings;
  mappings.reserve(raw.mappings().size() / sizeof(MappingRecord));
  uint64_t previous_end_avma = 0;
  while (!records.empty()) {
    const auto record = records.Take<MappingRecord>();
    if (!record) return Damaged("a mapping is cut");
    if (record->start_avma < previous_end_avma || record->end_avma <= record->start_avma) {
      return Damaged("its mappings overlap or are not in order");
    }
    if (record->path >= static_cast<uint32_t>(raw.paths_size()) ||
        record->build_id >= static_cast<uint32_t>(raw.build_ids_size())) {
      return Damaged("a mapping has a path or build-id that is not there");
    }
    previous_end_avma = record->end_avma;
    Mapping& mapping = mappings.emplace_back();
    mapping.start_avma = record->start_avma;
    mapping.end_avma = record->end_avma;
    mapping.file_offset = record->file_offset;
    mapping.readable = record->flags & kReadable;
    mapping.writable = record->flags & kWritable;
    mapping.executable = record->flags & kExecutable;
    mapping.path = raw.paths(static_cast<int>(record->path));
    mapping.device = record->device;
    mapping.inode = record->inode;
    mapping.bias = record->bias;
    parsed->build_ids.push_back(raw.build_ids(static_cast<int>(record->build_id)));
  }
  parsed->capture.map = std::make_shared<const AddressMap>(std::move(mappings));
  return {};
}

}  // namespace

std::string SerializeRaw(const Capture& capture) {
  // A capture may have a hundred thousand tasks, a message each.
  google::protobuf::Arena arena;
  store::RawCapture& raw = *google::protobuf::Arena::CreateMessage<store::RawCapture>(&arena);
  raw.set_version(kVersion);
  SerializeProcess(capture.process, raw.mutable_process());
  raw.set_trigger(static_cast<int32_t>(capture.trigger));
  raw.set_begin_wall_ns(capture.begin_wall_ns);
  raw.set_duration_ns(capture.duration_ns);
  raw.set_partial(capture.partial);
  raw.set_memory_read_bytes(capture.memory_read_bytes);
  raw.set_dump_signal(capture.dump_signal);
  for (const std::string& note : capture.notes) raw.add_notes(note);
  SerializeThreads(capture.threads, &raw);
  SerializeWaits(capture, &raw);
  if (capture.hang) SerializeHang(*capture.hang, raw.mutable_hang());
  if (capture.crash) SerializeCrash(*capture.crash, raw.mutable_crash());
  if (HasFacts(capture.managed)) SerializeManagedFacts(capture.managed, raw.mutable_managed());
  if (capture.map != nullptr) SerializeMappings(capture.map->mappings(), &raw);
  return raw.SerializeAsString();
}

Result<RawCapture> ParseRaw(std::string_view bytes) {
  store::RawCapture raw;
  const bool fits = bytes.size() <= std::numeric_limits<int>::max();
  if (!fits || !raw.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return Damaged("it cannot be parsed");
  if (raw.version() == 0) return Damaged("it has no version");
  if (raw.version() != kVersion) {
    return Error(Code::kFailedPrecondition, std::string("the raw capture was written by ") +
                                                (raw.version() > kVersion ? "a newer" : "an older") + " stackd (version " +
                                                std::to_string(raw.version()) + "; this one knows " +
                                                std::to_string(kVersion) + ")");
  }
  if (raw.trigger() < static_cast<int32_t>(Trigger::kRequest) || raw.trigger() > static_cast<int32_t>(Trigger::kSelf)) {
    return Damaged("its trigger is unknown");
  }
  RawCapture parsed;
  parsed.capture.process = ParseProcess(raw.process());
  parsed.capture.trigger = static_cast<Trigger>(raw.trigger());
  parsed.capture.begin_wall_ns = raw.begin_wall_ns();
  parsed.capture.duration_ns = raw.duration_ns();
  parsed.capture.partial = raw.partial();
  parsed.capture.memory_read_bytes = raw.memory_read_bytes();
  parsed.capture.dump_signal = raw.dump_signal();
  parsed.capture.notes.assign(raw.notes().begin(), raw.notes().end());
  if (raw.has_crash()) parsed.capture.crash = ParseCrash(raw.crash());
  if (const char* damage = ParseThreads(raw, &parsed.capture.threads); damage != nullptr) return Damaged(damage);
  if (!ParseWaits(raw, &parsed.capture)) return Damaged("a file lock is of an unknown kind");
  if (raw.has_hang() && !ParseHang(raw.hang(), &parsed.capture.hang.emplace())) return Damaged("its hang has no cause");
  if (!ParseManagedFacts(raw.managed(), &parsed.capture.managed)) return Damaged("what its runtimes said makes no sense");
  if (auto mapped = ParseMappings(raw, &parsed); !mapped) return std::unexpected(mapped.error());
  return parsed;
}

}  // namespace stackd
