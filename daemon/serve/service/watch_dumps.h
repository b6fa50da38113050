// The streams of WatchDumps.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "daemon/pipeline/pipeline.h"
#include "daemon/store/dump_store.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class DumpWatch;

// Thread-safe. No thread is held by a stream; a slow reader costs at most its own queue, and is told from which dump to go
// on when that is full.
class DumpWatchers {
 public:
  DumpWatchers(Pipeline* pipeline, DumpStore* store, size_t queue_limit);

  using Done = std::function<void(const grpc::Status&)>;

  // The reactor of a new call; it calls `done` with its status and deletes itself.
  grpc::ServerWriteReactor<v1::WatchDumpsResponse>* Start(const v1::WatchDumpsRequest& request, Done done);

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
