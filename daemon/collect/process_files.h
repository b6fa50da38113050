// What procfs tells of a process, through fds that the process itself opened and passed: that needs no permission, no
// shared PID namespace and no equal uid.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/collect/waits.h"

namespace stackd {

// Thread safety: const methods may run on several threads.
class ProcessFiles {
 public:
  ProcessFiles() = default;

  // Each takes the fd over if it lies on procfs; else leaves it and returns false. A process that passes another file might
  // make the daemon believe, or wait for, anything. Does not block.
  bool SetMemory(Fd* fd);
  bool SetMaps(Fd* fd);
  bool SetFolder(Fd* fd);

  // Whether both folders are of one process, by the kernel's word.
  bool IsSameProcess(const ProcessFiles& other) const;

  // Whether a tid means the same thread to both: both see the same procfs, and none is in a PID namespace below the one
  // that it counts in. False also where that is not known.
  bool CountsThreadsAs(const ProcessFiles& other) const;

  bool has_memory() const { return mem_.valid(); }
  bool has_maps() const { return maps_.valid(); }

  // Bytes of its memory, exactly as many; fails once it has ended.
  Result<std::vector<uint8_t>> ReadMemory(uint64_t avma, uint64_t size_bytes) const;
  // The same, as many as there are up to the first that cannot be read: 0 if that is the first. Nothing is allocated.
  size_t ReadSome(uint64_t avma, std::span<uint8_t> bytes) const;
  // How many bytes of its memory were read so far.
  int64_t memory_read_bytes() const { return memory_read_bytes_->load(); }
  // Adds those that it told by itself.
  void CountMemoryRead(uint64_t bytes) const { memory_read_bytes_->fetch_add(static_cast<int64_t>(bytes)); }
  // Whether its memory is gone, since it ended or became another program. False if it gave none.
  bool HasNoMemoryLeft() const;
  // The text of its maps, at most 16 MiB (the kernel's default limit of 65,530 mappings, 250 bytes each), by whole lines.
  Result<std::string> ReadMaps() const;

  // Its tids, in the kernel's order; empty if the folder cannot be read.
  std::vector<int32_t> Tids() const;
  // The folder of its threads, and in it the file of one that says how long it has run.
  Fd OpenTasks() const;
  static Fd OpenMotion(const Fd& tasks, int32_t tid);
  // 'R', 'S', 'D', 'T', ...; 0 if unknown. `tid` 0: the process.
  char State(int32_t tid) const;
  std::string ThreadName(int32_t tid) const;
  // Clock ticks from boot to its start; 0 if unknown.
  uint64_t StartTicks() const;
  // Whether a SIGTERM for the process waits to be taken; nullopt if that cannot be known.
  std::optional<bool> HasPendingSigterm() const;
  // Its pid as the daemon's own /proc counts; 0: it sees another procfs, or that is not known.
  int32_t PidInOwnProcfs() const;
  // Inode of an open file; nullopt: the kernel does not tell.
  std::optional<uint64_t> InodeOf(int32_t fd) const;
  // Whether its main thread has this signal blocked and pending; false if that cannot be known.
  bool HoldsBack(int signal_number) const;

 private:
  std::string ReadInFolder(const std::string& path) const;
  bool HasOnePid() const;

  // What a read of its memory gave, counted.
  ssize_t ReadAt(uint64_t avma, uint8_t* bytes, uint64_t size_bytes) const;

  std::shared_ptr<std::atomic<int64_t>> memory_read_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
  Fd mem_;
  Fd maps_;
  Fd folder_;
};

}  // namespace stackd
