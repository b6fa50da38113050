// Takes suspicions, has each dumped, and tells the log, the health service and the rule's program.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/result.h"
#include "daemon/collect/collector.h"
#include "daemon/detect/respond/hang_queue.h"
#include "daemon/detect/respond/process_health.h"
#include "daemon/detect/watch/suspicion.h"

namespace stackd {

// What the desk must know of a dump that was made.
struct HangDump {
  std::string name;
  std::string explanation;  // with the names of threads
  bool is_stored = false;
  // The dump's own findings say that something hangs.
  bool is_confirmed = false;
};

struct HangDeskOptions {
  std::function<Result<HangDump>(const std::string& process_id, const CaptureRequest& request)> create_dump;
  // The rule's program, which is to be told of the dump.
  std::function<void(const std::string& program, const HangDump& dump)> run;
  std::function<int64_t()> clock_ns;
  int dumpers = 2;
};

// Thread-safe.
class HangDesk {
 public:
  // `health` must outlive the desk.
  HangDesk(ProcessHealth* health, HangDeskOptions options);
  // Waits for dumps that are being made.
  ~HangDesk();

  // Does not block.
  void Add(SharedSuspicion suspicion);
  void Forget(const std::string& process_id);

  std::map<std::string, int64_t> Counters() const;

 private:
  void Run();
  // False: it failed, and may be tried again.
  bool Dump(const Suspicion& suspicion);

  ProcessHealth* const health_;
  const HangDeskOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HangQueue queue_;
  bool stopping_ = false;
  std::atomic<int64_t> dumps_{0}, failed_{0}, lost_{0}, unconfirmed_{0}, in_cooldown_{0};
  std::vector<std::thread> dumpers_;
};

}  // namespace stackd
