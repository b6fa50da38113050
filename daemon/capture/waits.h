// What threads of a process wait for, as facts: system calls, fds, and the words of locks that lie behind futexes.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/capture/system_call.h"

namespace stackd {

// A pthread_mutex_t of glibc or musl that contains the futex; believed because each of its fields makes sense.
struct PthreadMutex {
  uint32_t futex_offset = 0;  // where in it the futex is
  int32_t owner_tid = 0;      // 0: none, or not kept
  bool keeps_owner = true;    // musl's normal ones do not
  uint32_t count = 0;         // times that the owner has locked a recursive one
  uint32_t users = 0;
  int32_t kind = 0;  // as glibc's __kind: type in bits 0 and 1, robust 16, priority inheritance 32, shared 128

  bool operator==(const PthreadMutex&) const = default;
};

// A pthread_rwlock_t of glibc around the futex word, likewise.
struct GlibcRwlock {
  uint64_t avma = 0;          // of the lock; the futex is a word of it
  uint32_t reader_count = 0;  // that hold it, or wait for it while a writer does
  bool write_locked = false;  // or about to be
  int32_t writer_tid = 0;     // that holds it; 0: none
  bool prefers_writers = false;
  bool is_shared = false;  // by processes, as it says itself

  bool operator==(const GlibcRwlock&) const = default;
};

// Memory that processes share, as /proc/PID/maps names it.
struct SharedMemory {
  uint64_t device = 0;
  uint64_t inode = 0;

  bool operator==(const SharedMemory&) const = default;
};

// One word that threads wait on. Nothing of the memory around it is kept but what is here.
struct FutexWord {
  uint64_t avma = 0;
  uint32_t value = 0;
  std::optional<PthreadMutex> mutex;
  std::optional<GlibcRwlock> rwlock;
  // The word looks like a glibc mutex between two owners, for an instant. Other small words that stay may look so too.
  bool changes_hands = false;
  int32_t thread_tid = 0;       // whose control block (glibc's struct pthread) the word lies in; 0: none
  int32_t stdio_owner_tid = 0;  // that has the lock of a stream of glibc's stdio, if the word is one; 0: none
  // The word lies in memory that other processes may have, or its lock says so: a tid in it may be of any PID namespace.
  bool is_shared = false;
  SharedMemory shared_memory;      // all zero: not known
  int32_t owner_pid = 0;           // of another process that has the thread which the word names; 0: not known
  std::string owner_process_name;  // of that process

  bool operator==(const FutexWord&) const = default;
};

// A thread that waits on a futex.
struct FutexWait {
  int32_t tid = 0;
  uint64_t avma = 0;

  auto operator<=>(const FutexWait&) const = default;
};

// An fd that a thread waits for.
struct WaitedFd {
  int32_t fd = -1;
  std::string name;              // "pipe:[123]", "tcp 10.0.0.7:80 -> 10.0.0.9:41234"; empty: not known
  int32_t other_end = -1;        // of a pipe: an fd of the same process
  uint32_t watched_count = 0;    // of an epoll instance
  std::vector<int32_t> watched;  // the first of these

  bool operator==(const WaitedFd&) const = default;
};

// How a file lock is asked for: flock(), fcntl() with F_SETLKW, with F_OFD_SETLKW. Numbers as in stored captures.
enum class FileLockKind : uint8_t { kFlock = 1, kRecord = 2, kOpenFile = 3 };

// A process by its number in the daemon's PID namespace.
struct LockingProcess {
  int32_t pid = 0;
  std::string name;  // empty: not known

  bool operator==(const LockingProcess&) const = default;
};

// Whether the process that locked still has the lock: a flock() belongs to an open file, which other processes may share.
// Numbers as in stored captures.
enum class StillHolds : uint8_t { kNotKnown = 0, kYes = 1, kNo = 2 };

// A file lock that threads wait for, and what the kernel says of its holder.
struct FileLock {
  int32_t fd = -1;  // that the threads name
  FileLockKind kind = FileLockKind::kFlock;
  FileLockKind held_as = FileLockKind::kFlock;  // how the lock was taken that is in the way
  bool is_read_lock = false;
  LockingProcess holder;  // that locked it; pid 0: not recorded
  bool is_own = false;    // that is this process
  bool runs = false;      // a thread of the holder had a CPU, or wanted one
  StillHolds still_holds = StillHolds::kNotKnown;
  uint32_t more_readers = 0;  // that have locked the file to read as well
  // Processes of a wait cycle, `holder` first, or none. Each waits for a lock of the next, the last for this process's.
  std::vector<LockingProcess> cycle;

  bool operator==(const FileLock&) const = default;
};

// A thread that sleeps, as the process's helper saw it without waking it.
struct ThreadWait {
  int32_t tid = 0;
  uint64_t rsp_avma = 0;
  uint64_t rip_avma = 0;
  std::optional<SystemCall> call;  // nullopt: in a page fault or in none
};

// How often and how long a thread has run, from procfs. A thread whose `run_count` is the same twice has not run between.
struct ThreadSchedStat {
  int32_t tid = 0;
  int64_t run_ns = 0;
  int64_t runnable_ns = 0;  // waited for a CPU
  uint64_t run_count = 0;
};

// What was seen of a thread before a capture. Times in CLOCK_MONOTONIC.
struct ThreadPast {
  std::optional<int64_t> unmoved_since_ns;  // it has not run since
  std::optional<int64_t> absent_at_ns;      // it had not begun then, when others were there

  bool operator==(const ThreadPast&) const = default;
};

// Signs that a process was told to end.
struct SigtermSigns {
  // Grows with each SIGTERM that its handler, or sigwait(), has taken; nullopt: cannot be read now, or is not counted.
  std::optional<uint64_t> taken_count;
  bool is_pending = false;  // all its threads block it, or none of them runs
};

struct Heartbeat {
  std::string name;
  int32_t tid = 0;  // of the thread that registered it
  int64_t limit_ns = 0;
  uint64_t beats = 0;  // 0: suspended
  uint32_t cell = 0;   // its place: equal for the same heartbeat as long as it is registered
};

}  // namespace stackd
