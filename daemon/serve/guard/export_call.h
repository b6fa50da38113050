// The stream of ExportDump: a thread writes, piece by piece, as fast as the caller reads.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "daemon/export/export.h"
#include "daemon/serve/requests/call.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class ExportCall final : public grpc::ServerWriteReactor<v1::ExportDumpResponse> {
 public:
  ExportCall(grpc::CallbackServerContext* context, std::unique_ptr<Call> call);

  Call& call() { return *call_; }

  // Sends what `make` gives to its sink, and ends with its status. Nothing may be done with the call after this or End.
  void Send(const std::function<grpc::Status(const Sink& sink)>& make);
  void End(grpc::Status status);

  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  // False when the reader is gone or too slow.
  bool Add(std::string_view bytes);
  bool Flush();

  grpc::CallbackServerContext* const context_;
  const std::unique_ptr<Call> call_;
  const std::chrono::steady_clock::time_point end_;
  v1::ExportDumpResponse response_;

  std::mutex mutex_;
  std::condition_variable written_;
  bool writing_ = false;
  bool reader_is_there_ = true;
  bool is_too_slow_ = false;
};

}  // namespace stackd
