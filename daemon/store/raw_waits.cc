#include "daemon/store/raw_waits.h"

#include <optional>

namespace stackd {
namespace {

// Fields that have one name and one type in the struct and in its message. One list serves both ways.
#define FUTEX_FIELDS(FIELD)                                                                                     \
  FIELD(avma), FIELD(value), FIELD(changes_hands), FIELD(thread_tid), FIELD(stdio_owner_tid), FIELD(is_shared), \
      FIELD(owner_pid), FIELD(owner_process_name)
#define MUTEX_FIELDS(FIELD) FIELD(futex_offset), FIELD(owner_tid), FIELD(count), FIELD(users), FIELD(kind)
#define RWLOCK_FIELDS(FIELD) \
  FIELD(avma), FIELD(reader_count), FIELD(write_locked), FIELD(writer_tid), FIELD(prefers_writers)
#define TO_MESSAGE(field) raw->set_##field(value.field)
#define FROM_MESSAGE(field) value.field = raw.field()

void Serialize(const PthreadMutex& value, store::RawMutex* raw) {
  MUTEX_FIELDS(TO_MESSAGE);
  raw->set_keeps_no_owner(!value.keeps_owner);
}

void Serialize(const GlibcRwlock& value, store::RawRwlock* raw) { RWLOCK_FIELDS(TO_MESSAGE); }

void Serialize(const FutexWord& value, store::RawFutex* raw) {
  FUTEX_FIELDS(TO_MESSAGE);
  if (value.mutex) Serialize(*value.mutex, raw->mutable_mutex());
  if (value.rwlock) Serialize(*value.rwlock, raw->mutable_rwlock());
}

PthreadMutex ParseMutex(const store::RawMutex& raw) {
  PthreadMutex value;
  MUTEX_FIELDS(FROM_MESSAGE);
  value.keeps_owner = !raw.keeps_no_owner();
  return value;
}

GlibcRwlock ParseRwlock(const store::RawRwlock& raw) {
  GlibcRwlock value;
  RWLOCK_FIELDS(FROM_MESSAGE);
  return value;
}

FutexWord ParseFutex(const store::RawFutex& raw) {
  FutexWord value;
  FUTEX_FIELDS(FROM_MESSAGE);
  if (raw.has_mutex()) value.mutex = ParseMutex(raw.mutex());
  if (raw.has_rwlock()) value.rwlock = ParseRwlock(raw.rwlock());
  return value;
}

void Serialize(const WaitedFd& fd, store::RawFd* raw) {
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

void Serialize(const FileLock& lock, store::RawFileLock* raw) {
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
  for (const LockingProcess& process : lock.cycle) serialize(process, raw->add_cycle());
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
                .cycle = {}};
  for (const store::RawLockingProcess& process : raw.cycle()) lock.cycle.push_back({process.pid(), process.name()});
  return lock;
}

}  // namespace

void SerializeWaits(const Capture& capture, store::RawCapture* raw) {
  for (const FutexWord& futex : capture.futexes) Serialize(futex, raw->add_futexes());
  for (const WaitedFd& fd : capture.fds) Serialize(fd, raw->add_fds());
  for (const FileLock& lock : capture.file_locks) Serialize(lock, raw->add_file_locks());
}

bool ParseWaits(const store::RawCapture& raw, Capture* capture) {
  for (const store::RawFutex& futex : raw.futexes()) capture->futexes.push_back(ParseFutex(futex));
  for (const store::RawFd& fd : raw.fds()) capture->fds.push_back(ParseFd(fd));
  for (const store::RawFileLock& lock : raw.file_locks()) {
    auto file_lock = ParseFileLock(lock);
    if (!file_lock) return false;
    capture->file_locks.push_back(*std::move(file_lock));
  }
  return true;
}

}  // namespace stackd
