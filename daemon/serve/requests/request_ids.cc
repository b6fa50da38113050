#include "daemon/serve/requests/request_ids.h"

#include <chrono>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr int64_t kRememberedNs = 600 * kNsPerSecond;

}  // namespace

void RequestIds::ForgetOld(int64_t now_ns) {
  while (!made_.empty() && (made_.size() > capacity_ || now_ns - entries_.at(made_.front()).made_ns > kRememberedNs)) {
    entries_.erase(made_.front());
    made_.pop_front();
  }
}

Result<std::string> RequestIds::Once(const std::string& id, int64_t deadline_ns,
                                     const std::function<Result<std::string>()>& make) {
  std::unique_lock lock(mutex_);
  ForgetOld(MonotonicNs());
  while (true) {
    auto entry = entries_.find(id);
    if (entry == entries_.end()) break;
    if (entry->second.made_ns != 0) return entry->second.name;
    int64_t left_ns = deadline_ns - MonotonicNs();
    if (left_ns <= 0)
      return Error(Code::kDeadlineExceeded, "the first call with this request_id was not done by this call's deadline");
    changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
  }
  entries_[id];
  lock.unlock();
  Result<std::string> name = make();
  lock.lock();
  if (name) {
    entries_[id] = {MonotonicNs(), *name};
    made_.push_back(id);
  } else {
    entries_.erase(id);
  }
  changed_.notify_all();
  return name;
}

}  // namespace stackd
