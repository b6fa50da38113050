#include "daemon/analyze/waits/file_lock_owner.h"

#include <algorithm>
#include <string>

#include "daemon/base/printable.h"
#include "daemon/capture/waited_on.h"

namespace stackd {
namespace {

using Wait = v1::Wait;

// "backup (pid 12)"
std::string ProcessInWords(const LockingProcess& process) {
  const std::string pid = std::to_string(process.pid);
  return process.name.empty() ? "process " + pid : PrintableText(process.name) + " (pid " + pid + ")";
}

std::string OwnInWords(const FileLock& lock) {
  if (lock.held_as != FileLockKind::kFlock) return "held by this process itself";
  switch (lock.still_holds) {
    case StillHolds::kYes:
      return "held by this process itself, through another open file";
    case StillHolds::kNo:
      return "taken by this process through an open file that it has closed: a process that shares it has it";
    default:
      return "taken by this process itself, through another open file";
  }
}

std::string OtherInWords(const FileLock& lock) {
  if (lock.still_holds == StillHolds::kNo) {
    return "taken by process " + std::to_string(lock.holder.pid) +
           ", which has ended or closed it: a process that shares its open file has it";
  }
  const bool is_certain = lock.still_holds == StillHolds::kYes;
  std::string text = (is_certain ? "held by " : "taken by ") + ProcessInWords(lock.holder);
  if (!is_certain) text += "; whether it has it still is not known";
  if (lock.more_readers > 0) text += ", and by " + std::to_string(lock.more_readers) + " more to read";
  for (size_t i = 1; i < lock.cycle.size(); ++i) {
    text += ", which waits for a file lock of " + ProcessInWords(lock.cycle[i]);
  }
  return lock.cycle.empty() ? text : text + ", which waits for a file lock of this process";
}

}  // namespace

const FileLock* FindFileLock(const Capture& capture, const ThreadCapture& thread) {
  const auto kind = thread.call ? WaitedFileLock(*thread.call) : std::nullopt;
  if (!kind || thread.waited_fds.empty()) return nullptr;
  const auto found = std::ranges::find_if(
      capture.file_locks, [&](const FileLock& lock) { return lock.fd == thread.waited_fds[0] && lock.kind == *kind; });
  return found == capture.file_locks.end() ? nullptr : &*found;
}

WaitOwner FileLockOwner(FileLockKind kind, const FileLock* lock) {
  if (kind == FileLockKind::kOpenFile) {
    return {Wait::NOT_KNOWN, 0, "who has it is not known: /proc/locks shows no process for a wait by F_OFD_SETLKW"};
  }
  if (lock == nullptr) return {Wait::NONE, 0, ""};
  if (lock->held_as == FileLockKind::kOpenFile) {
    return {Wait::NOT_RECORDED, 0, "held as a lock of an open file (F_OFD_SETLK), for which the kernel records no process"};
  }
  if (lock->holder.pid <= 0) {
    return {Wait::NOT_KNOWN, 0, "held by a process that this kernel does not know, perhaps of another machine"};
  }
  if (lock->is_own) return {Wait::NOT_RECORDED, 0, OwnInWords(*lock)};
  return {Wait::OTHER_PROCESS, 0, OtherInWords(*lock)};
}

}  // namespace stackd
