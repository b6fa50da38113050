// The streams of WatchDumps.
#pragma once

#include <grpcpp/support/status.h>

#include <deque>
#include <expected>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/pipeline/pipeline.h"
#include "daemon/store/dump_store.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

// The caller's side of a watch. It may call back into the watch from within these.
class DumpStream {
 public:
  // Sends, and then calls Written. `response` stays as it is until then.
  virtual void Write(const v1::WatchDumpsResponse& response) = 0;
  // Ends the call. It is the last that a watch does with its stream.
  virtual void Finish(grpc::Status status) = 0;

 protected:
  ~DumpStream() = default;
};

// One stream: a bounded queue, and at most one write under way. Thread-safe.
class DumpWatch {
 public:
  // `stream` must stay until its Finish is called.
  DumpWatch(DumpStream* stream, std::string parent, size_t queue_limit)
      : stream_(stream), parent_(std::move(parent)), queue_limit_(queue_limit) {}

  // Begins to write: first what was stored before this watch, then what came since.
  void Begin();
  void Push(const v1::Dump& dump);
  void Written(bool ok);
  // Ends the stream without what is queued.
  void End(grpc::Status status);

  // Dumps that were stored before.
  struct Backlog {
    std::deque<v1::Dump> dumps;  // the oldest first
    bool more = false;           // newer ones were left out
  };

 private:
  friend class DumpWatchers;

  void Add(v1::Dump dump);
  void EndForSlowness();
  void EndNow(grpc::Status status);
  void Advance(std::unique_lock<std::mutex> lock);

  DumpStream* const stream_;
  const std::string parent_;
  const size_t queue_limit_;
  Backlog backlog_;
  std::shared_ptr<void> subscription_;

  std::mutex mutex_;
  std::deque<v1::Dump> queue_;
  v1::WatchDumpsResponse response_;
  bool busy_ = true;  // until Begin
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

// Thread-safe. No thread is held by a stream. A slow reader costs at most its own queue, and is told from which dump to go
// on when that is full.
class DumpWatchers {
 public:
  DumpWatchers(Pipeline* pipeline, DumpStore* store, size_t queue_limit);

  // A watch that has not begun yet, or why there is none.
  std::expected<std::shared_ptr<DumpWatch>, grpc::Status> Open(const v1::WatchDumpsRequest& request, DumpStream* stream);

  // Ends all streams with UNAVAILABLE, and refuses new ones.
  void EndAll();

 private:
  bool Add(const std::shared_ptr<DumpWatch>& watch);

  Pipeline* const pipeline_;
  DumpStore* const store_;
  const size_t queue_limit_;
  std::mutex mutex_;
  bool ended_ = false;
  std::vector<std::weak_ptr<DumpWatch>> watches_;
};

}  // namespace stackd
