// What procfs tells of a process, through fds that the process itself opened and passed. That needs no permission, no
// shared PID namespace and no equal uid.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/capture/waits.h"
#include "stackd/wire.h"

namespace stackd {

// Thread safety: const methods may run on several threads.
class ProcessFiles {
 public:
  ProcessFiles() = default;

  // Each takes the fd over if it lies on procfs; else leaves it and returns false. A process that passes another file might
  // make the daemon believe, or wait for, anything. Does not block. Memory may come later, while const methods run, and
  // once.
  bool SetMemory(Fd* fd);
  bool SetMaps(Fd* fd);
  // The folder of the process, of which it passes the files below as well.
  bool SetFolder(Fd* fd);
  // Its stat alone, which only tells it from other processes.
  bool SetStat(Fd* stat);
  // Its stat, status and schedstat.
  bool SetStatus(Fd* stat, Fd* status, Fd* schedstat);
  // In place of memory and maps, of a process that has ended: its core tells them. `read` copies up to the first byte that
  // is not there, and returns how many, or a negative errno value for none. Before all const methods.
  using ReadImage = std::function<int64_t(uint64_t avma, std::span<uint8_t> bytes)>;
  void SetImage(ReadImage read, std::string maps);
  bool is_image() const { return memory_->read_image != nullptr; }
  // How the process itself is asked for what lies below its folder, if it has passed none. Before all const methods.
  using Ask = std::function<std::optional<stackd_wait_answer>(const stackd_wait_question&)>;
  void AskBy(Ask ask) { ask_ = std::move(ask); }

  // Whether both are of one process, by the kernel's word.
  bool IsSameProcess(const ProcessFiles& other) const;

  // Whether a tid means the same thread to both. Both must see the same procfs, and neither may be in a PID namespace below
  // that procfs's. False also where that is not known.
  bool CountsThreadsAs(const ProcessFiles& other) const;

  bool has_memory() const { return memory_->is_there.load(); }
  bool has_maps() const { return maps_.valid() || is_image(); }

  // Bytes of its memory, exactly as many; fails once it has ended.
  Result<std::vector<uint8_t>> ReadMemory(uint64_t avma, uint64_t size_bytes) const;
  // Reads up to the first byte that cannot be read, and returns how many. Allocates nothing.
  size_t ReadSome(uint64_t avma, std::span<uint8_t> bytes) const;
  // How many bytes of its memory were read so far.
  int64_t memory_read_bytes() const { return memory_->read_bytes.load(); }
  // Adds bytes that the process sent by itself.
  void CountMemoryRead(uint64_t bytes) const { memory_->read_bytes.fetch_add(static_cast<int64_t>(bytes)); }
  // Whether its memory is gone, because it ended or called exec. False if it passed none.
  bool HasNoMemoryLeft() const;
  // The text of its maps, at most 16 MiB (the kernel's default limit of 65,530 mappings, 250 bytes each), by whole lines.
  Result<std::string> ReadMaps() const;

  bool has_folder() const { return folder_.valid(); }
  // Its tids, in the kernel's order; empty if the folder cannot be read.
  std::vector<int32_t> Tids() const;
  // How many threads it has; 0 if unknown.
  int32_t ThreadCount() const;
  // How often and how long the first thread has run; it is called `tid`.
  std::optional<ThreadSchedStat> FirstSchedStat(int32_t tid) const;
  // How long all its threads together have run, in ticks of the clock. As long as it does not change, no thread
  // has run for longer than a tick.
  std::optional<int64_t> RunTicks() const;
  // Its parent, as its procfs counts; 0 if unknown.
  int32_t ParentPid() const;
  // The folder of its threads; invalid if it has passed none.
  Fd OpenTasks() const;
  // How often and how long thread `tid` has run, by its folder.
  std::optional<ThreadSchedStat> SchedStatOf(int32_t tid) const;
  // 'R', 'S', 'D', 'T', ... of its first thread; 0 if unknown.
  char State() const;
  struct ThreadLook {
    char state = 0;
    uint64_t run_count = 0;
  };
  // nullopt: it is not there, or not known.
  std::optional<ThreadLook> LookAt(int32_t tid) const;
  std::string ThreadName(int32_t tid) const;
  // Clock ticks from boot to its start; 0 if unknown.
  uint64_t StartTicks() const;
  // Whether a SIGTERM for the process waits to be taken; nullopt if that cannot be known.
  std::optional<bool> HasPendingSigterm() const;
  // Its pid as the daemon's own /proc counts; 0: it sees another procfs, or that is not known.
  int32_t PidInOwnProcfs() const;
  // Inode of an open file that `tid` waits for the lock of; nullopt: that cannot be known.
  std::optional<uint64_t> InodeOf(int32_t tid, int32_t fd) const;
  // Whether its main thread has this signal blocked and pending; false if that cannot be known.
  bool HoldsBack(int signal_number) const;

 private:
  std::string ReadInFolder(const std::string& path) const;
  std::string ReadStat() const;
  std::string ReadStatus() const;
  bool HasOnePid() const;

  // What a read of its memory gave, counted; -1: errno says why.
  ssize_t ReadAt(uint64_t avma, uint8_t* bytes, uint64_t size_bytes) const;

  struct Memory {
    Fd fd;  // not before `is_there` is set
    std::atomic<bool> is_there{false};
    std::atomic<int64_t> read_bytes{0};
    ReadImage read_image;
    std::string image_maps;
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  Fd maps_;
  Fd stat_;
  Fd status_;
  Fd schedstat_;
  Fd folder_;
  Ask ask_;
};

}  // namespace stackd
