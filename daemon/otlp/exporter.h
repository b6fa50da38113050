// Sends crashes and hangs to an OpenTelemetry collector, over OTLP/gRPC. A dump is stored before it is told of: what cannot
// be sent is lost for the collector, not for stackctl, and it is counted.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/result.h"
#include "daemon/otlp/dump_quota.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

struct OtlpOptions {
  std::string endpoint;  // "http://localhost:4317"
  std::string ca_file;   // PEM; empty: the authorities of the system. Of https only.
  std::string headers;   // as OTEL_EXPORTER_OTLP_HEADERS; they may hold secrets, so they come from there alone
  size_t queue_limit = 256;
  // So many dumps of each fingerprint are sent whole, each in a record of its own. Those that wait are held in memory.
  int64_t dumps_per_fingerprint = 0;
  size_t max_waiting_dump_bytes = 16u << 20;
  // One try; what is between two, which doubles up to the second; and how long one record is tried.
  int64_t timeout_ns = 10 * kNsPerSecond;
  int64_t first_pause_ns = kNsPerSecond;
  int64_t longest_pause_ns = 30 * kNsPerSecond;
  int64_t give_up_ns = 300 * kNsPerSecond;
};

// Thread-safe.
class OtlpExporter {
 public:
  // Fails with one sentence that says what to change. A collector that is not there is not a failure: it may come.
  static Result<std::unique_ptr<OtlpExporter>> Start(OtlpOptions options);
  // Tries to send what waits, for at most a second.
  ~OtlpExporter();

  // Does not block, and takes nothing but crashes and hangs. Where too many wait, drops the new dump and keeps those before
  // it: what comes first is the cause more often.
  void Add(const std::shared_ptr<const v1::Dump>& dump);

  // Since start: "sent"; dropped as "queue_full", "refused" (by the collector, for good) or "late" (tried for too long, or
  // stackd ended); and "waiting". Of whole dumps "dumps_sent" and so on, and "dumps_too_large".
  std::map<std::string, int64_t> Counters() const;

 private:
  struct Link;
  struct Waiting;

  OtlpExporter(OtlpOptions options, std::unique_ptr<Link> link);
  // Records of one kind, and what became of them.
  struct Queue;

  // Takes a place among the first of its fingerprint. With the mutex held.
  void AddDump(const std::shared_ptr<const v1::Dump>& dump, size_t dump_bytes);
  void Run();
  // Renders a dump. False: it is too large, which is counted.
  bool Render(Waiting* dump);
  // Tries until the batch is sent or given up. A dump makes way for records that came meanwhile.
  void Send(std::vector<Waiting> batch, Queue* queue);
  // Gives back what the dumps hold: memory, and their places if they were not sent. With the mutex held.
  void LetGo(std::span<const Waiting> ended, bool is_sent);
  // nullopt: it can be tried again, after `pause_ns`.
  struct Outcome {
    int64_t sent = 0, refused = 0;
  };
  std::optional<Outcome> Try(const std::vector<Waiting>& batch, int64_t* pause_ns);
  void TellOfChange(bool works, const std::string& why);

  const OtlpOptions options_;
  const std::unique_ptr<Link> link_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::unique_ptr<Queue> records_, dumps_;
  DumpQuota quota_;
  size_t waiting_dump_bytes_ = 0;
  int64_t end_ns_ = INT64_MAX;  // when the last try must be over
  bool has_ended_ = false;
  bool works_ = true;  // of the thread
  std::thread thread_;
};

}  // namespace stackd
