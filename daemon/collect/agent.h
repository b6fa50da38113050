// One connected process: its fds, its ring, its modules, and the captures made of it.
//
// Two threads meet here: the collector's server thread reads the socket (OnMessage, OnClosed), and the thread that serves a
// request captures (CaptureThreads). Each member says whose it is.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/collect/capture.h"
#include "daemon/collect/collector.h"
#include "daemon/collect/message_socket.h"
#include "daemon/collect/module_loader.h"
#include "daemon/collect/process_files.h"
#include "daemon/ring/ring.h"
#include "stackd/wire.h"

namespace stackd {

// Counts for the whole collector.
struct CollectorCounters {
  std::atomic<int64_t> captures{0};
  std::atomic<int64_t> ring_records{0};
  std::atomic<int64_t> ring_corrupt_records{0};
  std::atomic<int64_t> ring_late_records{0};
  std::atomic<int64_t> ring_dropped_no_slot{0};
  std::atomic<int64_t> ring_dropped_late{0};
  std::atomic<int64_t> ring_dropped_agent_fault{0};
  std::atomic<int64_t> agents_accepted{0};
  std::atomic<int64_t> agents_rejected{0};
  std::atomic<int64_t> agents_displaced{0};
  std::atomic<int64_t> dump_requests_refused{0};
};

class Agent {
 public:
  // `peer_uid` is the kernel's word; everything in `hello` is the process's.
  Agent(Fd socket, uid_t peer_uid, const stackd_hello& hello, ProcessFiles files, std::unique_ptr<Ring> ring,
        std::string id, ModuleCache* modules, CollectorCounters* counters);

  int socket_fd() const { return socket_.get(); }
  const std::string& id() const { return id_; }
  uid_t peer_uid() const { return peer_uid_; }
  bool connected() const { return connected_.load(); }
  ProcessDescription Describe() const;

  // Server thread. False: the message makes no sense, drop the connection. What of its fds is not taken stays in it.
  // `wants_dump`: the process asked for a dump, and has not asked too often.
  bool OnMessage(ReceivedMessage* message, bool* wants_dump);
  void OnClosed();

  // Any thread; one at a time, the next waits. See Collector::CaptureProcess.
  Result<std::shared_ptr<Capture>> CaptureThreads(CaptureRequest request);

 private:
  class Recording;

  bool MayAskForDump();
  std::vector<Fd> OpenFiles(const std::vector<std::string>& paths, int64_t deadline_ns);
  void LoadModules(int64_t deadline_ns, std::vector<std::string>* notes);
  void SendCommand(const CaptureRequest& request);
  // Reads the ring until the dump is over, for whatever reason.
  void Record(const CaptureRequest& request, Recording* recording);
  bool IsStopped() const;
  // Gives a status to each thread that the kernel lists and nobody spoke for.
  void AccountForTheRest(int64_t deadline_ns, Recording* recording);
  void CountDrops();

  const Fd socket_;
  const uid_t peer_uid_;
  const std::string id_;
  const ProcessFiles files_;
  const std::unique_ptr<Ring> ring_;
  CollectorCounters* const counters_;
  std::atomic<bool> connected_{true};
  std::atomic<int32_t> thread_count_{0};

  mutable std::mutex description_mutex_;
  ProcessDescription description_;
  int32_t dump_signal_;

  // Of the server thread: when the process will have asked for no more dumps than it may.
  int64_t dump_requests_paid_ns_ = 0;

  // Files that the process was asked to open: written by the capturing thread, answered by the server thread.
  std::mutex files_mutex_;
  std::condition_variable files_changed_;
  uint32_t next_file_request_ = 1;
  std::map<uint32_t, size_t> awaited_files_;  // request id -> index into opened_files_
  std::vector<Fd> opened_files_;

  // Of the capturing thread.
  std::timed_mutex capture_mutex_;
  ModuleLoader loader_;
  std::shared_ptr<const AddressMap> map_;
  uint32_t map_generation_ = 0;
  uint32_t seq_ = 0;
  uint64_t dropped_seen_[STACKD_DROP_REASONS] = {};
};

}  // namespace stackd
