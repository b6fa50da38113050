// The stream of WatchDumps over HTTP. It holds no thread.
#pragma once

#include <expected>
#include <memory>

#include "daemon/http/http_message.h"
#include "daemon/serve/requests/call.h"
#include "daemon/serve/service/watch_dumps.h"
#include "daemon/serve/web/connect_codec.h"

namespace stackd {

// Kept alive by itself from Begin to Finish.
class ConnectWatch final : public DumpStream, public std::enable_shared_from_this<ConnectWatch> {
 public:
  ConnectWatch(std::shared_ptr<Call> call, std::shared_ptr<HttpReply> reply, const ConnectCodec& codec);

  // Ends the call with the error that is there in place of a watch.
  void Begin(std::expected<std::shared_ptr<DumpWatch>, grpc::Status> watch);

  void Write(const v1::WatchDumpsResponse& response) override;
  void Finish(grpc::Status status) override;

 private:
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<HttpReply> reply_;
  const ConnectCodec codec_;
  std::shared_ptr<DumpWatch> watch_;
  std::shared_ptr<ConnectWatch> self_;
};

}  // namespace stackd
