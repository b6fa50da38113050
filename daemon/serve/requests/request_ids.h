// Remembers for 10 minutes which dump a request_id led to, so that a retry under stress is one dump.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>

#include "daemon/base/result.h"

namespace stackd {

// Thread-safe.
class RequestIds {
 public:
  explicit RequestIds(size_t capacity = 4096) : capacity_(capacity) {}

  // The name that `make` gave for this id within the last 10 minutes, or that it gives now. Of calls that overlap one
  // makes and the others wait, at most until `deadline_ns` (CLOCK_MONOTONIC). A failure is not remembered: the next call
  // tries again.
  Result<std::string> Once(const std::string& id, int64_t deadline_ns, const std::function<Result<std::string>()>& make);

 private:
  struct Entry {
    int64_t made_ns = 0;  // 0: being made
    std::string name;
  };

  void ForgetOld(int64_t now_ns);

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Entry> entries_;
  std::list<std::string> made_;  // ids whose name is known, oldest first
};

}  // namespace stackd
