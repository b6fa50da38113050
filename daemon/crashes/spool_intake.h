// Takes crashes in from the spool: at start, when a process has ended, and every few seconds.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/capture/capture.h"
#include "daemon/capture/counters.h"
#include "daemon/crashes/crash_handler.h"
#include "daemon/crashes/quarantine.h"
#include "daemon/crashes/spool.h"
#include "daemon/modules/module_cache.h"

namespace stackd {

using CrashId = decltype(CrashCapture::id);

// What is to be done with a file.
struct SpoolFinding {
  enum class Kind {
    kCrash,       // `capture` is to be stored
    kUnfinished,  // a process may still write to it
    kNothing,     // empty, and no process will write to it
    kRefused,     // for `reason`; of its content if `readable`
    kUnreadable,  // for `reason`, now or to this user
    kGone,
  };
  Kind kind;
  std::shared_ptr<Capture> capture = nullptr;
  std::string reason = {};
  bool readable = false;
};

SpoolFinding LookAtSpoolFile(const Spool& spool, const std::string& name, ModuleCache* modules);

// Thread-safe. A file is removed when the handler has released it.
class SpoolIntake {
 public:
  // All must outlive it. `quarantine` may be nullptr: then nothing is set aside.
  SpoolIntake(const Spool* spool, const Quarantine* quarantine, ModuleCache* modules, CollectorCounters* counters);
  ~SpoolIntake();

  // A file of a connected process is left alone: what the ring holds goes first, and is more.
  void Hold(const std::string& name);
  void LetGo(const std::string& name);
  // Whether its process has written this crash there, so that it will be taken in. Opens no file but this one.
  bool HasCrash(const std::string& name, const CrashId& id) const;

  // Once; takes in what is there.
  void Start(CrashHandler handler);
  // The handler is not called any more.
  void Stop();
  // The daemon is told to end, and may have no time for the file that is being looked at: that is not the file's fault.
  void EndAttempts();

 private:
  enum class Outcome { kDone, kLookAgainSoon, kNotStored };

  void Run();
  // Goes through the folder. True if some file is to be looked at again soon.
  bool TakeAll();
  Outcome Take(const std::string& name);
  // Take, noted as an attempt; or sets the file aside, if there were too many.
  Outcome Attempt(const std::string& name);
  void Refuse(const std::string& name, const SpoolFinding& finding);
  void LeaveUnreadable(const std::string& name, const std::string& reason);
  bool IsHeld(const std::string& name);
  bool IsEnding();

  const Spool* const spool_;
  const Quarantine* const quarantine_;
  const int64_t start_ns_ = MonotonicNs();
  ModuleCache* const modules_;
  CollectorCounters* const counters_;
  CrashHandler handler_;

  // State of one round through the folder.
  size_t refused_ = 0;
  std::set<std::string> unreadable_, unreadable_before_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_;
  bool asked_ = true;  // to look now
  bool stopping_ = false;
  bool ending_ = false;
  std::string attempted_;  // the file that is being looked at; else empty
  std::thread thread_;
};

// The file of a process, held as long as this lives.
class HeldSpoolFile {
 public:
  HeldSpoolFile(const std::shared_ptr<SpoolIntake>& intake, std::string name);
  ~HeldSpoolFile();
  HeldSpoolFile(const HeldSpoolFile&) = delete;
  HeldSpoolFile& operator=(const HeldSpoolFile&) = delete;

  // See SpoolIntake::HasCrash.
  bool HasCrash(const CrashId& id) const;

 private:
  const std::weak_ptr<SpoolIntake> intake_;
  const std::string name_;
};

}  // namespace stackd
