#include "daemon/finisher.h"

#include <utility>

namespace stackd {
namespace {

size_t BytesOf(const Capture& capture) {
  size_t bytes = sizeof(Capture);
  for (const ThreadCapture& thread : capture.threads) {
    bytes += sizeof(ThreadCapture) + 8 * (thread.stack.masks().capacity() + thread.stack.words().capacity());
  }
  return bytes + capture.map->mappings().size() * sizeof(Mapping);
}

}  // namespace

Finisher::Finisher(int threads, std::function<void(UnfinishedCrash)> finish) : finish_(std::move(finish)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Finisher::~Finisher() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool Finisher::Add(UnfinishedCrash crash) {
  std::lock_guard lock(mutex_);
  size_t bytes = crash.capture == nullptr ? 0 : BytesOf(*crash.capture);
  const bool keeps = bytes_ == 0 || bytes_ + bytes <= kMaxBytes;
  if (!keeps) {
    crash.capture = nullptr;
    bytes = 0;
  }
  bytes_ += bytes;
  crashes_.emplace_back(std::move(crash), bytes);
  changed_.notify_one();
  return keeps;
}

size_t Finisher::waiting() const {
  std::lock_guard lock(mutex_);
  return crashes_.size();
}

void Finisher::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !crashes_.empty(); });
    if (stopping_) return;
    auto [crash, bytes] = std::move(crashes_.front());
    crashes_.pop_front();
    lock.unlock();
    finish_(std::move(crash));
    lock.lock();
    bytes_ -= bytes;
  }
}

}  // namespace stackd
