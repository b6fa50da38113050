// Calls of the gRPC servers, counted by an interceptor, by the names that other gRPC servers use (grpc_server_*).
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/base/histogram.h"
#include "daemon/metrics/exposition.h"

namespace stackd {

// Must outlive the servers. Thread-safe. Bounded: methods that no server has are counted together.
class RpcMetrics {
 public:
  // Counts the methods of these services ("stackd.v1.Stackd"), which are linked in with their descriptors.
  explicit RpcMetrics(std::initializer_list<std::string_view> services);

  // For ServerBuilder::experimental().SetInterceptorCreators.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptors();

  void Write(Exposition* out) const;

 private:
  static constexpr size_t kCodes = 17;  // OK to UNAUTHENTICATED

  struct Method {
    std::string service, name;
    const char* type;
    std::atomic<int64_t> started{0};
    std::array<std::atomic<int64_t>, kCodes> handled{};
    DurationHistogram duration;
  };
  class Interceptor;
  class Factory;

  // By "/stackd.v1.Stackd/GetDump"; "" has all others.
  std::map<std::string, Method, std::less<>> methods_;
};

}  // namespace stackd
