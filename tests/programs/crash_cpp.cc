// C++ deaths: the first argument says which. See crash_deaths.c.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/crash.h"

namespace orders {

class OutOfStock : public std::runtime_error {
 public:
  explicit OutOfStock(const std::string& what) : std::runtime_error(what) {}
};

struct Node {
  Node* next = nullptr;
  std::string name;

  // The list is a ring: it never ends.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winfinite-recursion"
  [[gnu::noinline]] size_t Length() const {
    volatile char frame[128];
    frame[0] = 1;
    return next->Length() + static_cast<size_t>(frame[0]);
  }
#pragma GCC diagnostic pop
};

[[gnu::noinline]] void Take(int count) {
  if (count > 0) throw OutOfStock("secret-customer-name");
}

[[gnu::noinline]] void TakeInt(int count) {
  if (count > 0) throw count;
}

void Overflow() {
  Node node;
  node.next = &node;
  std::printf("%zu\n", node.Length());
}

void Uncaught() {
  Take(std::getenv("PATH") != nullptr);
  VICTIM_NOT_A_TAIL_CALL();
}
void UncaughtInt() {
  TakeInt(std::getenv("PATH") != nullptr);
  VICTIM_NOT_A_TAIL_CALL();
}
void ThrowsThroughNoexcept() noexcept {
  Take(std::getenv("PATH") != nullptr);
  VICTIM_NOT_A_TAIL_CALL();
}

struct Base {
  Base() { Call(); }
  virtual ~Base() = default;
  [[gnu::noinline]] void Call() { Pure(); }
  virtual void Pure() = 0;
};
struct Derived : Base {
  void Pure() override { std::puts("derived"); }
};
void PureVirtual() { Derived derived; }

void OutOfRange() { std::printf("%d\n", std::vector<int>(3).at(7)); }

void BadAlloc() {
  const volatile size_t bytes = PTRDIFF_MAX / 2;
  std::printf("%p\n", static_cast<void*>(new char[bytes]));
}

}  // namespace orders

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*die)();
  } deaths[] = {
      {"overflow", orders::Overflow},        {"uncaught", orders::Uncaught},
      {"uncaught_int", orders::UncaughtInt}, {"noexcept", orders::ThrowsThroughNoexcept},
      {"pure_virtual", orders::PureVirtual}, {"out_of_range", orders::OutOfRange},
      {"bad_alloc", orders::BadAlloc},
  };
  if (argc < 2) return 2;
  for (int i = 2; i < argc; ++i) crash_heed(argv[i]);
  for (const auto& death : deaths) {
    if (std::strcmp(death.name, argv[1]) != 0) continue;
    if (argc > 2 && std::strcmp(argv[2], "thread") == 0) {
      std::thread(death.die).join();
    } else {
      death.die();
    }
    return 0;
  }
  return 2;
}
