// The record that was written last, of a thread, in what a ring holds. Anything else fails the test.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "daemon/ring/ring_reader.h"

namespace stackd {

class LastThread : public RingReader::Listener {
 public:
  void OnThread(ThreadRecord record) override { thread = std::move(record); }
  void OnStatus(StatusRecord) override { FAIL(); }
  void OnCrash(CrashRecord) override { FAIL(); }
  void OnWait(WaitRecord) override { FAIL(); }
  void OnSchedStats(SchedStatRecord) override { FAIL(); }
  void OnCorrupt(const char* what) override { FAIL() << what; }
  std::optional<ThreadRecord> thread;
};

}  // namespace stackd
