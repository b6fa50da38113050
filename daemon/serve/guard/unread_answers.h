// Ends calls whose answer the caller does not read: it holds memory.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "daemon/access/each_second.h"

namespace stackd {

// Thread-safe.
class UnreadAnswers {
 public:
  // Watches the call from the answer on until Remove, which must come before the context goes.
  void Add(grpc::CallbackServerContext* context);
  void Remove(grpc::CallbackServerContext* context);

 private:
  void EndOld();

  std::mutex mutex_;
  std::map<grpc::CallbackServerContext*, int64_t> given_ns_;
  EachSecond each_second_{[this] { EndOld(); }};
};

}  // namespace stackd
