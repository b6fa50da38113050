#include "daemon/collect/own_dump_queue.h"

#include <algorithm>
#include <utility>

#include "daemon/base/loop_watch.h"

namespace stackd {
namespace {

constexpr size_t kMaxQueued = 64;
// Dumps at a time: one process that does not answer holds up one of the threads until its deadline.
constexpr int kThreads = 4;

}  // namespace

void OwnDumpQueue::Add(OwnDumpRequest request) {
  std::lock_guard lock(mutex_);
  // One waiting request of a process is enough, but that each exception is a crash of its own. A process that has asked too
  // often was not heard: it cannot fill the queue.
  const bool waits = std::ranges::find(requests_, request.process_id, &OwnDumpRequest::process_id) != requests_.end();
  if (waits && !request.exception) return;
  if (requests_.size() >= kMaxQueued) {
    counters_->dump_requests_refused++;
    return;
  }
  requests_.push_back(std::move(request));
  changed_.notify_one();
}

void OwnDumpQueue::Start(std::function<void(const OwnDumpRequest&)> handler) {
  handler_ = std::move(handler);
  for (int i = 0; i < kThreads; i++) threads_.emplace_back([this] { Run(); });
}

void OwnDumpQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void OwnDumpQueue::Run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    // One at a time of each process, or a single one that does not answer would have all threads wait for it.
    auto next = requests_.end();
    changed_.wait(lock, [&] {
      next = std::ranges::find_if(requests_,
                                  [this](const OwnDumpRequest& request) { return !running_.contains(request.process_id); });
      return stopping_ || next != requests_.end();
    });
    if (stopping_) return;
    const OwnDumpRequest request = std::move(*next);
    requests_.erase(next);
    running_.insert(request.process_id);
    lock.unlock();
    {
      const LoopWatch::Turn turn(Loop::kDumpRequests);
      handler_(request);
    }
    lock.lock();
    running_.erase(request.process_id);
    changed_.notify_one();
  }
}

}  // namespace stackd
