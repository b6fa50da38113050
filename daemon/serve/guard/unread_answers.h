// Ends calls whose answer nobody reads: it holds memory.
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
  // From the answer on, until the call is done, which must be told before the context goes.
  void Add(grpc::CallbackServerContext* context);
  void Remove(grpc::CallbackServerContext* context);

 private:
  void EndOld();

  std::mutex mutex_;
  std::map<grpc::CallbackServerContext*, int64_t> given_ns_;
  EachSecond each_second_{[this] { EndOld(); }};
};

}  // namespace stackd
