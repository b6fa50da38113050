#include "daemon/process/memory_reader.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

std::atomic<int> running_of_all{0};

struct Task {
  std::shared_ptr<const ProcessFiles> files;
  std::shared_ptr<std::atomic<int>> running;
  MemoryReader::Work work;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  ~Task() {
    running->fetch_sub(1);
    running_of_all.fetch_sub(1);
  }
};

void* RunTask(void* argument) {
  std::unique_ptr<std::shared_ptr<Task>> task(static_cast<std::shared_ptr<Task>*>(argument));
  (*task)->work(*(*task)->files);
  std::lock_guard lock((*task)->mutex);
  (*task)->done = true;
  (*task)->changed.notify_all();
  return nullptr;
}

bool StartThread(const std::shared_ptr<Task>& task) {
  auto argument = std::make_unique<std::shared_ptr<Task>>(task);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, RunTask, argument.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (started) argument.release();
  return started;
}

}  // namespace

MemoryReader::MemoryReader(std::shared_ptr<const ProcessFiles> files)
    : files_(std::move(files)), running_(std::make_shared<std::atomic<int>>(0)) {}

bool MemoryReader::Run(int64_t deadline_ns, Work work) const {
  const bool too_many_of_this = running_->fetch_add(1) >= kMaxRunning;
  const bool too_many_of_all = running_of_all.fetch_add(1) >= kMaxRunningOfAll;
  auto task = std::make_shared<Task>();
  task->files = files_;
  task->running = running_;
  task->work = std::move(work);
  if (too_many_of_this || too_many_of_all || !StartThread(task)) return false;
  std::unique_lock lock(task->mutex);
  auto left = std::chrono::nanoseconds(std::max<int64_t>(0, deadline_ns - MonotonicNs()));
  return task->changed.wait_for(lock, left, [&] { return task->done; });
}

}  // namespace stackd
