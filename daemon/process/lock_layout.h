// What lies at a futex word, if it is a lock of glibc's or musl's that says who holds it, or that it does not.
//
// Layouts on x86-64, as glibc publishes them (sysdeps/nptl/bits/thread-shared-types.h, struct_mutex.h, struct_rwlock.h, and
// nptl/pthread_rwlock_common.c for what the words mean; before 2.25 bits/pthreadtypes.h and nptl/pthread_rwlock_*.c):
//
//     bytes     mutex, 2.17 to 2.42    rwlock, 2.25 to 2.42    rwlock, 2.17 to 2.24
//      0 ..  4  lock  <- futex         readers  <- futex        lock
//      4 ..  8  count                  writers                  nr_readers
//      8 .. 12  owner                  wrphase_futex  <- futex  readers_wakeup  <- futex
//     12 .. 16  nusers                 writers_futex  <- futex  writer_wakeup  <- futex
//     16 .. 20  kind                   0                        nr_readers_queued
//     20 .. 24  spins, elision         0                        nr_writers_queued
//     24 .. 32  list.prev              cur_writer, shared       writer, shared
//     32 .. 40  list.next              0                        0
//     40 .. 52                         0, flags                 0, flags
//
// and musl's mutex, as its src/internal/pthread_impl.h names the words, and src/thread/pthread_mutex_*.c use them:
//
//      0 ..  4  type: 0 normal, 1 recursive, 2 errorcheck; robust 4, priority inheritance 8, shared 128
//      4 ..  8  lock  <- futex: bit 31: threads wait; bit 30: the owner died; below: its tid, or EBUSY in a normal one
//      8 .. 12  waiters
//     12 .. 20  0
//     20 .. 24  count, of a recursive one
//     24 .. 40  prev, next: in the owner's list; of a normal one 0
//
// A futex may be anything: another library's lock, freed memory, a counter. So a lock is believed only if each field makes
// sense and all together are a state in which threads wait for long. In such a state the lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/capture/waits.h"
#include "daemon/modules/address_map.h"

namespace stackd {

// What is looked at around a futex word.
inline constexpr size_t kLockBytesBefore = 12;
inline constexpr size_t kLockBytesFrom = 52;

// No tid of Linux is higher.
inline constexpr int32_t kMaxTid = 1 << 22;

enum class RwlockLayout { kCurrent, kBefore2_25 };

// The layout of the glibc that is mapped there. Its file names its version up to 2.33, and later ones are current.
RwlockLayout RwlockLayoutOf(const AddressMap& map);

// `memory` holds the word at `offset`, whole, and as much of what is around it as could be read. Nothing of it is kept but
// the word and the fields of FutexWord.
FutexWord DecodeFutex(uint64_t avma, std::span<const uint8_t> memory, size_t offset, RwlockLayout layout);

}  // namespace stackd
