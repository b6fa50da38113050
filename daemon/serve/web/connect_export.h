// The stream of ExportDump over HTTP: a thread writes, piece by piece, as fast as the client reads.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "daemon/export/export.h"
#include "daemon/http/http_message.h"
#include "daemon/serve/web/connect_codec.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class ConnectExport {
 public:
  ConnectExport(std::shared_ptr<HttpReply> reply, const ConnectCodec& codec);

  // Sends what `make` gives to its sink, and the status in which that ended. Blocks.
  grpc::Status Send(const std::function<grpc::Status(const Sink& sink)>& make);

 private:
  // False when the client has gone, or reads too slowly.
  bool Add(std::string_view bytes);
  bool Flush();

  const std::shared_ptr<HttpReply> reply_;
  const ConnectCodec codec_;
  const std::chrono::steady_clock::time_point end_;
  v1::ExportDumpResponse response_;
  bool is_late_ = false, is_gone_ = false;
};

}  // namespace stackd
