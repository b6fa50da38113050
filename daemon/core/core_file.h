// A core file of Linux on x86-64, as the kernel or a debugger (gcore) wrote it: its segments and its notes.
//
// The file may come from anywhere, so nothing in it is trusted. Numbers are checked where they are read, and what is held
// is bounded: kMaxSegments, kMaxThreads, kMaxNotes. It is read by pread, never mapped: if its owner cuts it short, a
// program that has it mapped gets SIGBUS.
#pragma once

#include <signal.h>
#include <sys/user.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"

namespace stackd {

// A part of the process's memory. The core has the first `file_bytes` of it; the kernel leaves out what files have.
struct CoreSegment {
  uint64_t start_avma = 0;
  uint64_t end_avma = 0;
  uint64_t file_offset = 0;  // in the core
  uint64_t file_bytes = 0;   // at most the size of the segment, and within the core
  bool cut = false;          // the core had more of it once
  bool readable = false, writable = false, executable = false;
};

// A mapped file (NT_FILE).
struct CoreMapping {
  uint64_t start_avma = 0;
  uint64_t end_avma = 0;
  uint64_t file_offset = 0;  // in that file
  std::string path;          // as /proc/PID/maps has it, possibly with " (deleted)"
};

struct CoreThread {
  int32_t tid = 0;
  int64_t cpu_ns = 0;
  user_regs_struct registers{};
};

// Addresses that the kernel gave the process when it started (NT_AUXV); 0: not known.
struct CoreAuxiliary {
  uint64_t vdso_avma = 0, entry_avma = 0;
  uint64_t main_stack_avma = 0;  // somewhere in it
};

class CoreFile {
 public:
  // More are left out, with a note.
  static constexpr size_t kMaxSegments = 1u << 20, kMaxThreads = 100'000, kMaxNotes = 2'000'000;

  // Takes an fd of a regular file. Fails with kInvalidArgument, in one sentence that names `name`, for anything but such a
  // core with at least one thread.
  static Result<CoreFile> Open(Fd file, const std::string& name);

  int fd() const { return file_.get(); }
  // When it was written, CLOCK_REALTIME.
  int64_t written_wall_ns() const { return written_wall_ns_; }
  // It had more bytes once.
  bool is_cut() const { return is_cut_; }
  // By address, not overlapping.
  const std::vector<CoreSegment>& segments() const { return segments_; }
  const std::vector<CoreMapping>& mappings() const { return mappings_; }
  // The thread that the signal came to is the first. Each tid once.
  const std::vector<CoreThread>& threads() const { return threads_; }
  // That ended the process, or the one that a debugger saw last; nullopt: the core has none.
  const std::optional<siginfo_t>& signal() const { return signal_; }
  // A debugger's have a table of sections.
  bool is_by_debugger() const { return is_by_debugger_; }
  const CoreAuxiliary& auxiliary() const { return auxiliary_; }
  int32_t pid() const { return pid_; }
  int32_t uid() const { return uid_; }
  // The kernel's name of the program, at most 15 bytes; may be empty.
  const std::string& name() const { return name_; }
  // The first word of its command line. The others are the program's own business.
  const std::string& argv0() const { return argv0_; }
  // What is missing and why, one sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend class CoreParser;
  CoreFile() = default;

  Fd file_;
  int64_t written_wall_ns_ = 0;
  bool is_cut_ = false;
  std::vector<CoreSegment> segments_;
  std::vector<CoreMapping> mappings_;
  std::vector<CoreThread> threads_;
  std::optional<siginfo_t> signal_;
  bool is_by_debugger_ = false;
  CoreAuxiliary auxiliary_;
  int32_t pid_ = 0, uid_ = 0;
  std::string name_, argv0_;
  std::vector<std::string> notes_;
};

}  // namespace stackd
