#include "daemon/store/raw_capture.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/modules/address_map.h"
#include "daemon/store/raw_capture.pb.h"
#include "daemon/store/raw_managed.h"

namespace stackd {
namespace {

constexpr uint32_t kVersion = 2;

// ThreadRecord::flags
constexpr uint8_t kHasStack = 1, kTruncated = 2, kReadAsleep = 4, kIsAgent = 8;

// Both records are the file format: no padding, no change without a new kVersion.
struct ThreadRecord {
  int32_t tid;
  uint8_t status;
  char kernel_state;
  uint8_t flags;
  uint8_t reserved;
  uint32_t name_bytes;
  uint32_t wait_channel_bytes;
  int64_t cpu_ns;
  int64_t pause_ns;
  uint64_t thread_self_avma;
  uint64_t registers[17];
  uint64_t stack_base_avma;
  uint32_t stack_words;       // covered, kept or not
  uint32_t stack_words_kept;  // of both parts
  uint64_t outer_base_avma;   // as in StackCopy
  uint32_t outer_words;
  uint32_t reserved_too;
};
static_assert(sizeof(ThreadRecord) == 16 + 3 * 8 + 17 * 8 + 32 && std::has_unique_object_representations_v<ThreadRecord>);

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

// What not every thread has is kept by the place of its thread in `threads`.
struct CallRecord {
  uint32_t thread;
  uint32_t number;
  uint32_t known_arguments;
  uint32_t reserved;
  uint64_t arguments[6];
};
static_assert(sizeof(CallRecord) == 16 + 6 * 8 && std::has_unique_object_representations_v<CallRecord>);

struct WaitedFdRecord {
  uint32_t thread;
  int32_t fd;
};
static_assert(sizeof(WaitedFdRecord) == 8 && std::has_unique_object_representations_v<WaitedFdRecord>);

struct UnmovedRecord {
  uint32_t thread;
  uint32_t reserved;
  int64_t unmoved_ns;
};
static_assert(sizeof(UnmovedRecord) == 16 && std::has_unique_object_representations_v<UnmovedRecord>);

template <typename T>
void Append(std::span<const T> values, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

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

void SerializeProcess(const ProcessDescription& process, store::RawProcess* raw) {
  raw->set_id(process.id);
  raw->set_pid(process.pid);
  raw->set_uid(process.uid);
  raw->set_abi_version(process.abi_version);
  raw->set_display_name(process.display_name);
  raw->set_executable(process.executable);
  raw->set_argv0(process.argv0);
  raw->set_hostname(process.hostname);
  raw->set_start_wall_ns(process.start_wall_ns);
  raw->set_connect_wall_ns(process.connect_wall_ns);
  raw->set_thread_count(process.thread_count);
  raw->set_share(static_cast<int32_t>(process.share));
  for (const std::string& limit : process.limits) raw->add_limits(limit);
  for (const auto& [key, value] : process.resource_attributes) (*raw->mutable_resource_attributes())[key] = value;
}

Share ParseShare(int32_t number) {
  const bool is_known = number >= 0 && number <= static_cast<int32_t>(Share::kMemory);
  return is_known ? static_cast<Share>(number) : Share::kNotSaid;
}

ProcessDescription ParseProcess(const store::RawProcess& raw) {
  ProcessDescription process;
  process.id = raw.id();
  process.pid = raw.pid();
  process.uid = raw.uid();
  process.abi_version = raw.abi_version();
  process.display_name = raw.display_name();
  process.executable = raw.executable();
  process.argv0 = raw.argv0();
  process.hostname = raw.hostname();
  process.start_wall_ns = raw.start_wall_ns();
  process.connect_wall_ns = raw.connect_wall_ns();
  process.thread_count = raw.thread_count();
  process.share = ParseShare(raw.share());
  process.limits.assign(raw.limits().begin(), raw.limits().end());
  process.resource_attributes.insert(raw.resource_attributes().begin(), raw.resource_attributes().end());
  return process;
}

void SerializeCrash(const CrashCapture& crash, store::RawCrash* raw) {
  raw->set_id_high(crash.id[0]);
  raw->set_id_low(crash.id[1]);
  raw->set_flags(crash.flags);
  raw->set_tid(crash.tid);
  raw->set_signal_number(crash.signal_number);
  raw->set_signal_code(crash.signal_code);
  raw->set_fault_address_avma(crash.fault_address_avma);
  raw->set_sender_pid(crash.sender_pid);
  raw->set_sender_uid(crash.sender_uid);
  raw->set_trap_error(crash.trap_error);
  raw->set_trap_number(crash.trap_number);
  raw->set_stack_start_avma(crash.stack_start_avma);
  raw->set_stack_end_avma(crash.stack_end_avma);
  raw->set_abort_message(crash.abort_message);
  raw->set_exception_type(crash.exception_type);
  raw->set_from_spool(crash.from_spool);
}

CrashCapture ParseCrash(const store::RawCrash& raw) {
  CrashCapture crash;
  crash.id = {raw.id_high(), raw.id_low()};
  crash.flags = raw.flags();
  crash.tid = raw.tid();
  crash.signal_number = raw.signal_number();
  crash.signal_code = raw.signal_code();
  crash.fault_address_avma = raw.fault_address_avma();
  crash.sender_pid = raw.sender_pid();
  crash.sender_uid = raw.sender_uid();
  crash.trap_error = raw.trap_error();
  crash.trap_number = raw.trap_number();
  crash.stack_start_avma = raw.stack_start_avma();
  crash.stack_end_avma = raw.stack_end_avma();
  crash.abort_message = raw.abort_message();
  crash.exception_type = raw.exception_type();
  crash.from_spool = raw.from_spool();
  return crash;
}

void SerializeThreads(const std::vector<ThreadCapture>& threads, store::RawCapture* raw) {
  size_t masks = 0, words = 0;
  for (const ThreadCapture& thread : threads) {
    masks += thread.stack.masks().size();
    words += thread.stack.words().size();
  }
  raw->mutable_threads()->reserve(threads.size() * sizeof(ThreadRecord));
  raw->mutable_stack_masks()->reserve(masks * sizeof(uint64_t));
  raw->mutable_stack_words()->reserve(words * sizeof(uint64_t));

  for (const ThreadCapture& thread : threads) {
    ThreadRecord record{};
    record.tid = thread.tid;
    record.status = static_cast<uint8_t>(thread.status);
    record.kernel_state = thread.kernel_state;
    record.flags = (thread.has_stack ? kHasStack : 0) | (thread.stack_truncated ? kTruncated : 0) |
                   (thread.read_asleep ? kReadAsleep : 0) | (thread.is_agent ? kIsAgent : 0);
    record.name_bytes = static_cast<uint32_t>(thread.name.size());
    record.wait_channel_bytes = static_cast<uint32_t>(thread.wait_channel.size());
    record.cpu_ns = thread.cpu_ns;
    record.pause_ns = thread.pause_ns;
    record.thread_self_avma = thread.thread_self_avma;
    static_assert(sizeof(record.registers) == sizeof(thread.registers.value));
    std::memcpy(record.registers, thread.registers.value.data(), sizeof(record.registers));
    record.stack_base_avma = thread.stack.base_avma();
    record.stack_words = thread.stack.word_count();
    record.outer_base_avma = thread.stack.outer_base_avma();
    record.outer_words = thread.stack.outer_word_count();
    record.stack_words_kept = static_cast<uint32_t>(thread.stack.words().size());
    Append(std::span<const ThreadRecord>(&record, 1), raw->mutable_threads());
    raw->mutable_thread_texts()->append(thread.name).append(thread.wait_channel);
    Append(std::span(thread.stack.masks()), raw->mutable_stack_masks());
    Append(std::span(thread.stack.words()), raw->mutable_stack_words());
  }
}

void SerializeWaits(const std::vector<ThreadCapture>& threads, store::RawCapture* raw) {
  for (uint32_t i = 0; i < threads.size(); i++) {
    const ThreadCapture& thread = threads[i];
    if (thread.call) {
      CallRecord record{.thread = i,
                        .number = thread.call->number,
                        .known_arguments = thread.call->known_arguments,
                        .reserved = 0,
                        .arguments = {}};
      std::ranges::copy(thread.call->arguments, record.arguments);
      Append(std::span<const CallRecord>(&record, 1), raw->mutable_calls());
    }
    for (int32_t fd : thread.waited_fds) {
      const WaitedFdRecord record{i, fd};
      Append(std::span(&record, 1), raw->mutable_waited_fds());
    }
    if (thread.unmoved_ns >= 0) {
      const UnmovedRecord record{i, 0, thread.unmoved_ns};
      Append(std::span(&record, 1), raw->mutable_unmoved());
    }
  }
}

void SerializeHang(const HangCapture& hang, store::RawHang* raw) {
  raw->set_cause(static_cast<int32_t>(hang.cause));
  raw->set_explanation(hang.explanation);
  raw->set_tid(hang.tid);
  raw->set_heartbeat(hang.heartbeat);
  raw->set_duration_ns(hang.duration_ns);
  raw->set_rule(hang.rule);
  raw->set_loop_function(hang.loop_function);
}

// False for an unknown cause.
bool ParseHang(const store::RawHang& raw, HangCapture* hang) {
  if (raw.cause() < static_cast<int32_t>(HangCause::kHeartbeatMissed) ||
      raw.cause() > static_cast<int32_t>(HangCause::kNotGone)) {
    return false;
  }
  hang->cause = static_cast<HangCause>(raw.cause());
  hang->explanation = raw.explanation();
  hang->tid = raw.tid();
  hang->heartbeat = raw.heartbeat();
  hang->duration_ns = raw.duration_ns();
  hang->rule = raw.rule();
  hang->loop_function = raw.loop_function();
  return true;
}

void SerializeFutex(const FutexWord& futex, store::RawFutex* raw) {
  raw->set_avma(futex.avma);
  raw->set_value(futex.value);
  raw->set_thread_tid(futex.thread_tid);
  raw->set_stdio_owner_tid(futex.stdio_owner_tid);
  raw->set_is_shared(futex.is_shared);
  raw->set_changes_hands(futex.changes_hands);
  raw->set_owner_pid(futex.owner_pid);
  raw->set_owner_process_name(futex.owner_process_name);
  if (futex.mutex) {
    raw->mutable_mutex()->set_futex_offset(futex.mutex->futex_offset);
    raw->mutable_mutex()->set_owner_tid(futex.mutex->owner_tid);
    raw->mutable_mutex()->set_keeps_no_owner(!futex.mutex->keeps_owner);
    raw->mutable_mutex()->set_count(futex.mutex->count);
    raw->mutable_mutex()->set_users(futex.mutex->users);
    raw->mutable_mutex()->set_kind(futex.mutex->kind);
  }
  if (futex.rwlock) {
    raw->mutable_rwlock()->set_avma(futex.rwlock->avma);
    raw->mutable_rwlock()->set_reader_count(futex.rwlock->reader_count);
    raw->mutable_rwlock()->set_write_locked(futex.rwlock->write_locked);
    raw->mutable_rwlock()->set_writer_tid(futex.rwlock->writer_tid);
    raw->mutable_rwlock()->set_prefers_writers(futex.rwlock->prefers_writers);
  }
}

FutexWord ParseFutex(const store::RawFutex& raw) {
  FutexWord futex{.avma = raw.avma(),
                  .value = raw.value(),
                  .changes_hands = raw.changes_hands(),
                  .thread_tid = raw.thread_tid(),
                  .stdio_owner_tid = raw.stdio_owner_tid(),
                  .is_shared = raw.is_shared(),
                  .owner_pid = raw.owner_pid(),
                  .owner_process_name = raw.owner_process_name()};
  if (raw.has_mutex()) {
    futex.mutex = PthreadMutex{.futex_offset = raw.mutex().futex_offset(),
                               .owner_tid = raw.mutex().owner_tid(),
                               .keeps_owner = !raw.mutex().keeps_no_owner(),
                               .count = raw.mutex().count(),
                               .users = raw.mutex().users(),
                               .kind = raw.mutex().kind()};
  }
  if (raw.has_rwlock()) {
    futex.rwlock = GlibcRwlock{.avma = raw.rwlock().avma(),
                               .reader_count = raw.rwlock().reader_count(),
                               .write_locked = raw.rwlock().write_locked(),
                               .writer_tid = raw.rwlock().writer_tid(),
                               .prefers_writers = raw.rwlock().prefers_writers()};
  }
  return futex;
}

void SerializeFd(const WaitedFd& fd, store::RawFd* raw) {
  raw->set_fd(fd.fd);
  raw->set_name(fd.name);
  raw->set_other_end(fd.other_end);
  raw->set_watched_count(fd.watched_count);
  for (int32_t watched : fd.watched) raw->add_watched(watched);
}

WaitedFd ParseFd(const store::RawFd& raw) {
  return {.fd = raw.fd(),
          .name = raw.name(),
          .other_end = raw.other_end(),
          .watched_count = raw.watched_count(),
          .watched = {raw.watched().begin(), raw.watched().end()}};
}

void SerializeFileLock(const FileLock& lock, store::RawFileLock* raw) {
  const auto serialize = [](const LockingProcess& process, store::RawLockingProcess* to) {
    to->set_pid(process.pid);
    to->set_name(process.name);
  };
  raw->set_fd(lock.fd);
  raw->set_kind(static_cast<int32_t>(lock.kind));
  raw->set_held_as(static_cast<int32_t>(lock.held_as));
  raw->set_is_read_lock(lock.is_read_lock);
  serialize(lock.holder, raw->mutable_holder());
  raw->set_is_own(lock.is_own);
  raw->set_runs(lock.runs);
  raw->set_still_holds(static_cast<int32_t>(lock.still_holds));
  raw->set_more_readers(lock.more_readers);
  for (const LockingProcess& process : lock.circle) serialize(process, raw->add_circle());
}

// nullopt for a number that stands for nothing.
std::optional<FileLock> ParseFileLock(const store::RawFileLock& raw) {
  const auto is_kind = [](int32_t kind) {
    return kind >= static_cast<int32_t>(FileLockKind::kFlock) && kind <= static_cast<int32_t>(FileLockKind::kOpenFile);
  };
  const bool holds_is_known = raw.still_holds() >= 0 && raw.still_holds() <= static_cast<int32_t>(StillHolds::kNo);
  if (!is_kind(raw.kind()) || !is_kind(raw.held_as()) || !holds_is_known) return std::nullopt;
  FileLock lock{.fd = raw.fd(),
                .kind = static_cast<FileLockKind>(raw.kind()),
                .held_as = static_cast<FileLockKind>(raw.held_as()),
                .is_read_lock = raw.is_read_lock(),
                .holder = {raw.holder().pid(), raw.holder().name()},
                .is_own = raw.is_own(),
                .runs = raw.runs(),
                .still_holds = static_cast<StillHolds>(raw.still_holds()),
                .more_readers = raw.more_readers(),
                .circle = {}};
  for (const store::RawLockingProcess& process : raw.circle()) lock.circle.push_back({process.pid(), process.name()});
  return lock;
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
    Append(std::span<const MappingRecord>(&record, 1), raw->mutable_mappings());
  }
}

// Takes packed records from the front of a table that may be shorter than they claim.
class Table {
 public:
  explicit Table(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }

  std::optional<std::string_view> TakeBytes(uint64_t size_bytes) {
    if (size_bytes > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, size_bytes);
    rest_.remove_prefix(size_bytes);
    return taken;
  }

  template <typename T>
  std::optional<T> Take() {
    const auto bytes = TakeBytes(sizeof(T));
    if (!bytes) return std::nullopt;
    T value;
    std::memcpy(&value, bytes->data(), sizeof(T));
    return value;
  }

  std::optional<std::vector<uint64_t>> TakeWords(uint64_t count) {
    // `count` has 32 bits or fewer, so the product does not overflow.
    const auto bytes = TakeBytes(count * sizeof(uint64_t));
    if (!bytes) return std::nullopt;
    std::vector<uint64_t> words(count);
    if (count > 0) std::memcpy(words.data(), bytes->data(), bytes->size());
    return words;
  }

 private:
  std::string_view rest_;
};

std::unexpected<Status> Damaged(const char* what) {
  return Error(Code::kDataLoss, std::string("the raw capture is damaged: ") + what);
}

// nullopt if the tables do not hold what `record` claims.
std::optional<StackCopy> ParseStack(const ThreadRecord& record, Table* masks_table, Table* words_table) {
  const uint64_t inner_masks = (uint64_t{record.stack_words} + 63) / 64;
  auto masks = masks_table->TakeWords(inner_masks + (uint64_t{record.outer_words} + 63) / 64);
  auto words = words_table->TakeWords(record.stack_words_kept);
  if (!masks || !words) return std::nullopt;
  uint64_t kept = 0;
  for (uint64_t mask : *masks) kept += std::popcount(mask);
  const int bits_of_last = record.stack_words % 64, outer_bits_of_last = record.outer_words % 64;
  if (bits_of_last != 0 && (*masks)[inner_masks - 1] >> bits_of_last != 0) return std::nullopt;
  if (outer_bits_of_last != 0 && masks->back() >> outer_bits_of_last != 0) return std::nullopt;
  if (kept != words->size()) return std::nullopt;
  return StackCopy(record.stack_base_avma, record.stack_words, std::move(*masks), std::move(*words), record.outer_base_avma,
                   record.outer_words);
}

Result<std::vector<ThreadCapture>> ParseThreads(const store::RawCapture& raw) {
  Table records(raw.threads()), texts(raw.thread_texts()), masks(raw.stack_masks()), words(raw.stack_words());
  std::vector<ThreadCapture> threads;
  threads.reserve(raw.threads().size() / sizeof(ThreadRecord));
  while (!records.empty()) {
    const auto record = records.Take<ThreadRecord>();
    if (!record) return Damaged("a thread is cut");
    if (record->status < static_cast<uint8_t>(ThreadStatus::kCaptured) ||
        record->status > static_cast<uint8_t>(ThreadStatus::kRunning)) {
      return Damaged("a thread has an unknown status");
    }
    const auto name = texts.TakeBytes(record->name_bytes);
    const auto wait_channel = texts.TakeBytes(record->wait_channel_bytes);
    auto stack = ParseStack(*record, &masks, &words);
    if (!name || !wait_channel || !stack) return Damaged("a thread's stack or name does not fit its length");
    ThreadCapture& thread = threads.emplace_back();
    thread.tid = record->tid;
    thread.name = *name;
    thread.status = static_cast<ThreadStatus>(record->status);
    thread.kernel_state = record->kernel_state;
    thread.wait_channel = *wait_channel;
    thread.cpu_ns = record->cpu_ns;
    thread.pause_ns = record->pause_ns;
    thread.thread_self_avma = record->thread_self_avma;
    thread.has_stack = record->flags & kHasStack;
    thread.stack_truncated = record->flags & kTruncated;
    thread.read_asleep = record->flags & kReadAsleep;
    thread.is_agent = record->flags & kIsAgent;
    std::memcpy(thread.registers.value.data(), record->registers, sizeof(record->registers));
    if (thread.read_asleep) thread.registers.known = KnownAsleep(thread.registers);
    thread.stack = std::move(*stack);
  }
  return threads;
}

// Calls `fill` with each record of a table and its thread. False if the table is cut or a thread is not there.
template <typename Record, typename Fill>
bool ForEachOfThreads(std::string_view bytes, std::vector<ThreadCapture>* threads, Fill fill) {
  Table records(bytes);
  while (!records.empty()) {
    const auto record = records.Take<Record>();
    if (!record || record->thread >= threads->size()) return false;
    fill(*record, &(*threads)[record->thread]);
  }
  return true;
}

Result<void> ParseWaits(const store::RawCapture& raw, std::vector<ThreadCapture>* threads) {
  const bool whole =
      ForEachOfThreads<CallRecord>(raw.calls(), threads,
                                   [](const CallRecord& record, ThreadCapture* thread) {
                                     SystemCall& call = thread->call.emplace();
                                     call.number = record.number;
                                     call.known_arguments = record.known_arguments;
                                     std::ranges::copy(record.arguments, call.arguments.begin());
                                   }) &&
      ForEachOfThreads<WaitedFdRecord>(
          raw.waited_fds(), threads,
          [](const WaitedFdRecord& record, ThreadCapture* thread) { thread->waited_fds.push_back(record.fd); }) &&
      ForEachOfThreads<UnmovedRecord>(raw.unmoved(), threads, [](const UnmovedRecord& record, ThreadCapture* thread) {
        thread->unmoved_ns = record.unmoved_ns;
      });
  if (!whole) return Damaged("what its threads wait for is cut, or of threads that it does not have");
  return {};
}

Result<void> ParseMappings(const store::RawCapture& raw, RawCapture* parsed) {
  Table records(raw.mappings());
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
  SerializeWaits(capture.threads, &raw);
  for (const FutexWord& futex : capture.futexes) SerializeFutex(futex, raw.add_futexes());
  for (const WaitedFd& fd : capture.fds) SerializeFd(fd, raw.add_fds());
  for (const FileLock& lock : capture.file_locks) SerializeFileLock(lock, raw.add_file_locks());
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
  if (raw.version() > kVersion) {
    return Error(Code::kFailedPrecondition, "the raw capture was written by a newer stackd (version " +
                                                std::to_string(raw.version()) + "; this one knows " +
                                                std::to_string(kVersion) + ")");
  }
  if (raw.version() == 0) return Damaged("it has no version");
  if (raw.version() < kVersion) {
    return Error(Code::kFailedPrecondition, "the raw capture was written by an older stackd (version " +
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
  auto threads = ParseThreads(raw);
  if (!threads) return std::unexpected(threads.error());
  parsed.capture.threads = std::move(*threads);
  if (auto waits = ParseWaits(raw, &parsed.capture.threads); !waits) return std::unexpected(waits.error());
  for (const store::RawFutex& futex : raw.futexes()) parsed.capture.futexes.push_back(ParseFutex(futex));
  for (const store::RawFd& fd : raw.fds()) parsed.capture.fds.push_back(ParseFd(fd));
  for (const store::RawFileLock& lock : raw.file_locks()) {
    auto file_lock = ParseFileLock(lock);
    if (!file_lock) return Damaged("a file lock is of an unknown kind");
    parsed.capture.file_locks.push_back(*std::move(file_lock));
  }
  if (raw.has_hang() && !ParseHang(raw.hang(), &parsed.capture.hang.emplace())) return Damaged("its hang has no cause");
  if (!ParseManagedFacts(raw.managed(), &parsed.capture.managed)) return Damaged("what its runtimes said makes no sense");
  if (auto mapped = ParseMappings(raw, &parsed); !mapped) return std::unexpected(mapped.error());
  return parsed;
}

}  // namespace stackd
