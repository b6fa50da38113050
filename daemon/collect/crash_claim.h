// The one crash of a process, from its record or its runtime's report until it is captured.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "daemon/base/fd.h"
#include "daemon/capture/counters.h"
#include "daemon/capture/managed.h"
#include "daemon/collect/message_socket.h"
#include "daemon/ring/record.h"
#include "daemon/ring/ring.h"

namespace stackd {

// The file in memory that a runtime writes its last words to. Thread-safe.
class RuntimeReportFile {
 public:
  // The server thread: keeps the file of REPORT_FILE. False: the message makes no sense.
  bool Keep(ReceivedMessage* message);
  // What the runtime wrote, once: it is whole when the connection has ended. nullopt: nothing.
  std::optional<RuntimeReport> Take();

 private:
  std::mutex mutex_;  // guards all below
  Fd file_;
  RuntimeReport report_;  // without its text
};

// Thread-safe: any thread may find the crash in the ring, and one of the crash intake captures it.
class CrashClaim {
 public:
  // Both must outlive it.
  CrashClaim(Ring* ring, CollectorCounters* counters) : ring_(ring), counters_(counters) {}

  bool has_crashed() const { return has_crashed_.load(); }
  // Keeps the first crash and tells the process so; counts the others.
  void Keep(CrashRecord record);
  // Keeps what the runtime wrote last, if no handler saw the crash.
  void KeepReport(RuntimeReportFile* file);
  // True once, when there is a crash.
  bool Claim();
  // The crash that was claimed: of one that no handler saw there is a report, of all others a record.
  std::optional<CrashRecord> TakeRecord();
  std::optional<RuntimeReport> TakeReport();
  // The crash is on disk: lets the process die.
  void Release();

 private:
  Ring* const ring_;
  CollectorCounters* const counters_;
  std::atomic<bool> has_crashed_{false};

  std::mutex mutex_;  // guards all below
  std::optional<CrashRecord> record_;
  std::optional<RuntimeReport> report_;
  bool is_claimed_ = false;
};

}  // namespace stackd
