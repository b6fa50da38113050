// One piece of work for all callers that want it at the same time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/result.h"

namespace stackd {

// Thread-safe.
template <typename Key, typename T>
class SingleFlight {
 public:
  // What came of a call, or of the one that it joined, whose deadline that is.
  struct Done {
    Result<T> result;
    int64_t deadline_ns;
  };

  // `late`: the error of calls that join one which is not done by their deadline.
  explicit SingleFlight(std::string late) : late_(std::move(late)) {}

  // Calls `work`, or joins the call that does so for an equal key. A call that joins none first asks `may_begin`, whose
  // error is its own.
  Done Do(const Key& key, int64_t deadline_ns, const std::function<Result<void>()>& may_begin,
          const std::function<Result<T>()>& work) {
    std::shared_ptr<Call> call;
    {
      std::lock_guard lock(mutex_);
      const auto found = calls_.find(key);
      if (found == calls_.end()) {
        // With the lock held: no call may join what is then refused.
        Result<void> may = may_begin ? may_begin() : Result<void>();
        if (!may) return {std::unexpected(std::move(may.error())), deadline_ns};
        calls_.emplace(key, std::make_shared<Call>(deadline_ns));
      } else {
        call = found->second;
      }
    }
    return call == nullptr ? Lead(key, deadline_ns, work) : Join(*call, deadline_ns);
  }

  // How many calls have joined another.
  int64_t joined() const { return joined_; }

 private:
  struct Call {
    explicit Call(int64_t deadline) : deadline_ns(deadline) {}

    const int64_t deadline_ns;
    std::promise<Result<T>> promise;
    std::shared_future<Result<T>> result = promise.get_future().share();
  };

  Done Lead(const Key& key, int64_t deadline_ns, const std::function<Result<T>()>& work) {
    Result<T> result = work();
    std::unique_lock lock(mutex_);
    const auto call = calls_.extract(key).mapped();
    lock.unlock();
    call->promise.set_value(result);
    return {std::move(result), deadline_ns};
  }

  Done Join(Call& call, int64_t deadline_ns) {
    ++joined_;
    const std::chrono::nanoseconds left(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
    if (call.result.wait_for(left) == std::future_status::ready) return {call.result.get(), call.deadline_ns};
    return {Error(Code::kDeadlineExceeded, late_), deadline_ns};
  }

  const std::string late_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Call>> calls_;
  std::atomic<int64_t> joined_ = 0;
};

}  // namespace stackd
