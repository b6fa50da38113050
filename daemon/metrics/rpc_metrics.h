// Calls of the API, counted by the names that other gRPC servers use (grpc_server_*).
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

  // Counts one call from now until `End`, or until it goes, which is taken for a caller that has gone.
  class Counted;
  // For a call that no gRPC server serves. `path`: "/stackd.v1.Stackd/GetDump".
  std::unique_ptr<Counted> Begin(std::string_view path);

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

  Method* Find(std::string_view path);

  // By "/stackd.v1.Stackd/GetDump"; "" has all others.
  std::map<std::string, Method, std::less<>> methods_;
};

class RpcMetrics::Counted {
 public:
  explicit Counted(Method* method);
  ~Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  void End(grpc::StatusCode code);

 private:
  Method* const method_;
  const int64_t begin_ns_;
  bool has_ended_ = false;
};

}  // namespace stackd
