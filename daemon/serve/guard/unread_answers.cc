#include "daemon/serve/guard/unread_answers.h"

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// The largest answer takes a second on a line of 32 Mbit/s.
constexpr int64_t kReadWithinNs = 60 * kNsPerSecond;

}  // namespace

void UnreadAnswers::Add(grpc::CallbackServerContext* context) {
  std::lock_guard lock(mutex_);
  given_ns_[context] = MonotonicNs();
}

void UnreadAnswers::Remove(grpc::CallbackServerContext* context) {
  std::lock_guard lock(mutex_);
  given_ns_.erase(context);
}

void UnreadAnswers::EndOld() {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = MonotonicNs();
  for (auto& [context, given_ns] : given_ns_) {
    // With the lock held, for Remove waits for it before the context goes. gRPC calls back on other threads.
    if (now_ns - given_ns > kReadWithinNs) context->TryCancel();
  }
}

}  // namespace stackd
