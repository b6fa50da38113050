// The stream of WatchDumps over gRPC.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "daemon/serve/requests/call.h"
#include "daemon/serve/service/watch_dumps.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class WatchCall final : public grpc::ServerWriteReactor<v1::WatchDumpsResponse>, public DumpStream {
 public:
  explicit WatchCall(std::unique_ptr<Call> call) : call_(std::move(call)) {}

  Call& call() { return *call_; }

  // Ends the call with the error that is there in place of a watch.
  void Begin(std::expected<std::shared_ptr<DumpWatch>, grpc::Status> watch) {
    if (!watch) return Finish(std::move(watch.error()));
    watch_ = std::move(*watch);
    // Headers tell the caller that from now on it misses nothing.
    StartSendInitialMetadata();
    watch_->Begin();
  }

  void Write(const v1::WatchDumpsResponse& response) override { StartWrite(&response); }
  void Finish(grpc::Status status) override { ServerWriteReactor::Finish(call_->Answered(std::move(status))); }

  void OnWriteDone(bool ok) override { watch_->Written(ok); }
  void OnCancel() override {
    if (watch_ != nullptr) watch_->End(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  const std::unique_ptr<Call> call_;
  std::shared_ptr<DumpWatch> watch_;
};

}  // namespace stackd
