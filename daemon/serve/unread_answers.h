// Ends calls whose answer nobody reads: it holds memory.
#pragma once

#include <grpcpp/server_context.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

namespace stackd {

// Thread-safe.
class UnreadAnswers {
 public:
  UnreadAnswers();
  ~UnreadAnswers();

  // From the answer on, until the call is done, which must be told before the context goes.
  void Add(grpc::CallbackServerContext* context);
  void Remove(grpc::CallbackServerContext* context);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::map<grpc::CallbackServerContext*, int64_t> given_ns_;
  std::thread thread_;
};

}  // namespace stackd
