// C++ at -O2 without frame pointers: templates, lambdas, virtual and std::function calls, inlined chains, locks of the
// standard library, an exception's handler. One thread for each, named after what it does.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/victim.h"

namespace orders {

std::mutex held_by_main;
std::shared_mutex written_by_main;
std::condition_variable never;
std::promise<int> never_kept;
int silent_pipe[2];

void BlockInRead() {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
}

// Templates: a recursion over types, each instance a function of its own.
template <typename Value, int kDepth>
struct Nested {
  VICTIM_NOINLINE static Value Descend(const Value& value) {
    Value result = Nested<Value, kDepth - 1>::Descend(value);
    VICTIM_NOT_A_TAIL_CALL();
    return result + value;
  }
};
template <typename Value>
struct Nested<Value, 0> {
  VICTIM_NOINLINE static Value Descend(const Value& value) {
    BlockInRead();
    return value;
  }
};

// Virtual calls with `this` adjusted by a thunk.
struct Left {
  virtual ~Left() = default;
  virtual int Weigh() = 0;
  int left = 1;
};
struct Right {
  virtual ~Right() = default;
  virtual int Measure(const std::string& unit) = 0;
  int right = 2;
};
struct Both final : Left, Right {
  VICTIM_NOINLINE int Weigh() override { return left; }
  VICTIM_NOINLINE int Measure(const std::string& unit) override {
    std::unique_lock<std::mutex> lock(held_by_main);
    return static_cast<int>(unit.size()) + right;
  }
};
VICTIM_NOINLINE int MeasureAny(Right* any) { return any->Measure("kilograms") + 1; }

// Five levels that -O2 melts into one: only the debug information knows them.
inline __attribute__((always_inline)) void Level5() { BlockInRead(); }
inline __attribute__((always_inline)) void Level4() { Level5(); }
inline __attribute__((always_inline)) void Level3() {
  Level4();
  VICTIM_NOT_A_TAIL_CALL();
}
inline __attribute__((always_inline)) void Level2() { Level3(); }
VICTIM_NOINLINE void Level1() {
  Level2();
  VICTIM_NOT_A_TAIL_CALL();
}

// A lambda in an algorithm in a lambda in a std::function.
VICTIM_NOINLINE int SumBlocking(const std::vector<int>& values) {
  std::function<int(int)> step = [&values](int start) {
    return std::accumulate(values.begin(), values.end(), start, [](int sum, int value) {
      if (value == 3) {
        auto block = [](auto&& callable) { callable(); };
        block([] { BlockInRead(); });
      }
      return sum + value;
    });
  };
  return step(0) + 1;
}

// The handler of an exception runs below the frames that were unwound.
VICTIM_NOINLINE void Throws(int depth) {
  if (depth == 0) throw std::runtime_error("order lost");
  Throws(depth - 1);
  VICTIM_NOT_A_TAIL_CALL();
}
VICTIM_NOINLINE void CatchesAndBlocks() {
  try {
    Throws(5);
  } catch (const std::exception&) {
    BlockInRead();
  }
}

class Queue {
 public:
  VICTIM_NOINLINE int Pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    never_.wait(lock, [this] { return !items_.empty(); });
    return items_.back();
  }

 private:
  std::mutex mutex_;
  std::condition_variable never_;
  std::vector<int> items_;
};

struct Case {
  const char* name;
  long syscall;
  std::function<void()> body;
};

void* RunCase(void* argument) {
  static_cast<Case*>(argument)->body();
  VICTIM_NOT_A_TAIL_CALL();
  return nullptr;
}

std::vector<Case> AllCases() {
  return {
      {"templates", SYS_read, [] { (void)Nested<double, 4>::Descend(1.0); }},
      {"templates-str", SYS_read, [] { (void)Nested<std::string, 2>::Descend("x"); }},
      {"virtual", SYS_futex, [] { (void)MeasureAny(std::make_unique<Both>().get()); }},
      {"inlined", SYS_read, [] { Level1(); }},
      {"lambdas", SYS_read, [] { (void)SumBlocking({1, 2, 3, 4}); }},
      {"catch", SYS_read, [] { CatchesAndBlocks(); }},
      {"queue", SYS_futex, [] { (void)std::make_unique<Queue>()->Pop(); }},
      {"future", SYS_futex, [] { (void)never_kept.get_future().get(); }},
      {"shared-mutex", SYS_futex, [] { std::shared_lock<std::shared_mutex> lock(written_by_main); }},
      {"sleep-for", SYS_clock_nanosleep, [] { std::this_thread::sleep_for(std::chrono::hours(1)); }},
  };
}

}  // namespace orders

int main() {
  victim_check(pipe(orders::silent_pipe) == 0, "pipe");
  orders::held_by_main.lock();
  orders::written_by_main.lock();
  static std::vector<orders::Case> cases = orders::AllCases();
  std::vector<victim_thread> threads(cases.size() + 1);
  for (size_t i = 0; i < cases.size(); ++i) {
    victim_start(&threads[i], cases[i].name, orders::RunCase, &cases[i], 256 << 10);
    victim_await_syscall(threads[i].tid, cases[i].syscall);
  }
  // One made by the standard library, whose entry is its own template.
  std::atomic<pid_t> standard_tid = 0;
  std::thread standard(
      [&standard_tid](int) {
        standard_tid = victim_tid();
        orders::BlockInRead();
      },
      1);
  while (standard_tid == 0) usleep(50);
  victim_await_syscall(standard_tid, SYS_read);
  victim_ready();
  victim_wait_for_ever();
}
