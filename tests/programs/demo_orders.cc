// A small order service that hangs, to have something to look at: two workers hold a lock each and want the other's, the
// rest of the workers queue up behind them, and what has nothing to do with it idles as it should.
#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/victim.h"

namespace orders {

struct Account {
  std::mutex mutex;
  long balance = 1000;
};

struct Order {
  Account* from;
  Account* to;
  long amount;
};

Account checking;
Account savings;
std::latch both_hold_one(2);

class OrderQueue {
 public:
  void Push(Order order) {
    std::lock_guard<std::mutex> lock(mutex_);
    orders_.push_back(order);
    not_empty_.notify_one();
  }
  VICTIM_NOINLINE Order Pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    not_empty_.wait(lock, [this] { return !orders_.empty(); });
    Order order = orders_.front();
    orders_.pop_front();
    return order;
  }

 private:
  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<Order> orders_;
};

// The bug: each direction locks in its own order.
VICTIM_NOINLINE void Transfer(const Order& order, bool first) {
  std::lock_guard<std::mutex> from(order.from->mutex);
  if (first) both_hold_one.arrive_and_wait();
  std::lock_guard<std::mutex> to(order.to->mutex);
  order.from->balance -= order.amount;
  order.to->balance += order.amount;
}

VICTIM_NOINLINE void Settle(OrderQueue& queue, bool first) {
  for (;;) {
    Order order = queue.Pop();
    Transfer(order, first);
  }
}

VICTIM_NOINLINE void AcceptConnections() {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  for (epoll_event event;;) epoll_wait(epoll, &event, 1, -1);
}

VICTIM_NOINLINE void FlushJournal() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

class Service {
 public:
  // Starts `body` in a thread and returns its tid.
  template <typename Body>
  pid_t Start(const std::string& name, Body body) {
    std::atomic<pid_t> tid = 0;
    threads_.emplace_back([&tid, name, body] {
      pthread_setname_np(pthread_self(), name.c_str());
      tid = victim_tid();
      body();
    });
    while (tid == 0) std::this_thread::yield();
    return tid;
  }

  void Run() {
    std::vector<pid_t> blocked;
    hanging_.Push({&checking, &savings, 10});
    hanging_.Push({&savings, &checking, 20});
    for (int i = 0; i < 2; ++i) blocked.push_back(Start("settle-" + std::to_string(i), [this] { Settle(hanging_, true); }));
    for (pid_t tid : blocked) victim_await_syscall(tid, SYS_futex);
    for (int i = 2; i < 12; ++i) {
      queued_.Push({&checking, &savings, i});
      blocked.push_back(Start("settle-" + std::to_string(i), [this] { Settle(queued_, false); }));
    }
    for (int i = 0; i < 6; ++i) blocked.push_back(Start("idle-" + std::to_string(i), [this] { Settle(empty_, false); }));
    for (pid_t tid : blocked) victim_await_syscall(tid, SYS_futex);
    victim_await_syscall(Start("acceptor", AcceptConnections), SYS_epoll_wait);
    victim_await_syscall(Start("journal", FlushJournal), SYS_clock_nanosleep);
    victim_ready();
    threads_.front().join();
  }

 private:
  OrderQueue hanging_;
  OrderQueue queued_;
  OrderQueue empty_;
  std::vector<std::thread> threads_;
};

}  // namespace orders

int main() { orders::Service().Run(); }
