// Turns faults into C++ exceptions, as gcj and some servers do. Throws out of the handler, through the signal frame and
// whatever lies between it and the handler. Built with -fnon-call-exceptions.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/programs/crash.h"

namespace {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CountsDestructions {
  static int count;
  ~CountsDestructions() { ++count; }
};
int CountsDestructions::count = 0;

void OnFault(int number) {
  // The handler is left for good: the signal must not stay blocked.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  throw Fault(strsignal(number));
}

[[gnu::noinline]] int Load(const volatile int* address) {
  CountsDestructions in_between;
  return *address;
}

[[gnu::noinline]] int Divide(int dividend, int divisor) {
  CountsDestructions in_between;
  return dividend / divisor;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2) crash_await_ring();
  std::signal(SIGSEGV, OnFault);
  std::signal(SIGFPE, OnFault);
  int caught = 0, result = 0;
  const int* volatile nowhere = nullptr;
  volatile int zero = 0;
  for (int i = 0; i < count; ++i) {
    try {
      result += Load(nowhere + 2);
    } catch (const Fault& fault) {
      caught += std::strcmp(fault.what(), "Segmentation fault") == 0;
    }
    try {
      result += Divide(i, zero);
    } catch (const Fault& fault) {
      caught += std::strcmp(fault.what(), "Floating point exception") == 0;
    }
  }
  std::printf("%d caught, %d destroyed, result %d\n", caught, CountsDestructions::count, result);
}
