// A small order service that hangs, to have something to look at. Two workers hold a lock each and want the other's. The
// rest of the workers queue up behind them, and what has nothing to do with it idles as it should.
#include <sys/epoll.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <latch>
#include <mutex>
#include <string>
#include <thread>

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

OrderQueue hanging_orders;
OrderQueue queued_orders;
OrderQueue no_orders;

VICTIM_NOINLINE void Settle(OrderQueue& queue, bool first) {
  for (;;) {
    Order order = queue.Pop();
    Transfer(order, first);
  }
}

// What threads run: plain functions, so that the stacks of the demonstration are short.
void* SettleFirst(void*) {
  Settle(hanging_orders, true);
  return nullptr;
}

void* SettleQueued(void*) {
  Settle(queued_orders, false);
  return nullptr;
}

void* SettleNothing(void*) {
  Settle(no_orders, false);
  return nullptr;
}

void* AcceptConnections(void* unused) {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  for (epoll_event event;;) epoll_wait(epoll, &event, 1, -1);
  return unused;
}

void* FlushJournal(void* unused) {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  return unused;
}

// Starts a thread and returns when it is blocked in system call `number`.
void StartBlocked(const std::string& name, void* (*body)(void*), long number) {
  victim_thread thread;
  victim_start(&thread, name.c_str(), body, nullptr, 256 << 10);
  victim_await_syscall(thread.tid, number);
}

VICTIM_NOINLINE void Run() {
  hanging_orders.Push({&checking, &savings, 10});
  hanging_orders.Push({&savings, &checking, 20});
  for (int i = 0; i < 2; ++i) StartBlocked("settle-" + std::to_string(i), SettleFirst, SYS_futex);
  for (int i = 2; i < 12; ++i) {
    queued_orders.Push({&checking, &savings, i});
    StartBlocked("settle-" + std::to_string(i), SettleQueued, SYS_futex);
  }
  for (int i = 0; i < 6; ++i) StartBlocked("idle-" + std::to_string(i), SettleNothing, SYS_futex);
  StartBlocked("acceptor", AcceptConnections, SYS_epoll_wait);
  StartBlocked("journal", FlushJournal, SYS_clock_nanosleep);
  victim_ready();
  victim_wait_for_ever();
}

}  // namespace orders

int main() { orders::Run(); }
