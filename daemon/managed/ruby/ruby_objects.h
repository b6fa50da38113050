// What Ruby keeps of threads and locks, in the memory of the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/process/process_files.h"

namespace stackd {

// Where a version keeps them. Structures are named as Ruby names them.
struct RubyOffsets {
  uint64_t thread_native;         // of rb_thread_t: rb_native_thread, which has its tid; 0: it has that itself
  uint64_t tid;                   // of either
  uint64_t thread_waiting_node;   // of rb_thread_t: in the list of those that wait for the global VM lock
  uint64_t thread_locking_mutex;  // the Mutex that it waits for
  uint64_t thread_name;
  uint64_t ractor_running;  // of rb_ractor_t: the rb_thread_t that has the global VM lock
  uint64_t ractor_waiting;  // head of the list
  uint64_t text_characters;
  bool text_length_is_in_flags;
};

// nullptr: not known. `version` is 30102 for 3.1.2.
const RubyOffsets* OffsetsOfRuby(uint64_t version);

// The process runs on: whatever is read may be garbage, and lists are bounded. After the deadline no memory can be read:
// each of many threads may lead to long lists.
class RubyObjects {
 public:
  RubyObjects(const ProcessFiles& memory, const RubyOffsets& offsets, int64_t deadline_ns)
      : memory_(memory), offsets_(offsets), deadline_ns_(deadline_ns) {}

  // The rb_thread_t of an rb_execution_context_t; 0: it cannot be read.
  uint64_t ThreadOf(uint64_t context_avma) const;
  // 0: not known.
  int32_t TidOf(uint64_t thread_avma) const;
  std::string NameOf(uint64_t thread_avma) const;
  uint64_t RactorOf(uint64_t thread_avma) const;

  // The thread that has the lock of a ractor, or 0, and those that wait for it. nullopt: it changed hands meanwhile.
  struct VmLock {
    uint64_t owner_avma = 0;
    std::vector<uint64_t> waiters;
  };
  std::optional<VmLock> ReadVmLock(uint64_t ractor_avma) const;

  // The Mutex that a thread waits for; 0: none.
  uint64_t WaitedMutex(uint64_t thread_avma) const;
  struct Mutex {
    uint64_t owner_avma = 0;  // rb_thread_t of the fiber that has it; 0: none
    std::vector<uint64_t> waiters;
  };
  // nullopt: none is there.
  std::optional<Mutex> ReadMutex(uint64_t mutex_avma) const;
  // The Mutex that a thread waits for, as its stack says from `rsp_avma` on; 0: none.
  uint64_t WaitedMutexOnStack(uint64_t rsp_avma, int32_t tid) const;

 private:
  std::optional<uint64_t> Word(uint64_t avma) const;
  std::string Text(uint64_t avma) const;
  // The first node points back at the head.
  bool IsListHead(uint64_t avma) const;
  // Addresses of the nodes of a list.
  std::vector<uint64_t> Nodes(uint64_t head_avma) const;

  const ProcessFiles& memory_;
  const RubyOffsets& offsets_;
  const int64_t deadline_ns_;
};

}  // namespace stackd
