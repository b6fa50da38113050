// A C++ program that uses what is installed of the agent: heartbeats in scopes, a name, a name of a thread, its own dump.
// Orders come by stdin: "dump", "suspend" (answers when it was unwatched for longer than its limit), "hang".
#include <stackd/agent.h>

#include <chrono>
#include <iostream>
#include <stackd/heartbeat.hpp>
#include <string>
#include <thread>

namespace orders {

constexpr std::chrono::milliseconds kLimit(500);

__attribute__((noinline)) void StuckInTheLoop() {
  std::string never;
  std::getline(std::cin, never);
  std::cout << never << std::flush;
}

bool Obey(const std::string& order, stackd::Heartbeat& heartbeat) {
  if (order == "dump") {
    std::cout << stackd_dump_now(60000) << std::endl;
  } else if (order == "suspend") {
    heartbeat.suspended([] { std::this_thread::sleep_for(3 * kLimit); });
    std::cout << "went on" << std::endl;
  } else if (order == "hang") {
    StuckInTheLoop();
  } else {
    return false;
  }
  return true;
}

void Serve() {
  stackd_name_thread("order-loop");
  stackd::Heartbeat heartbeat("orders", kLimit);
  heartbeat.beat();
  std::cout << "ready" << std::endl;
  std::string order;
  do {
    stackd::Suspension suspension(heartbeat);
    if (!std::getline(std::cin, order)) return;
  } while (Obey(order, heartbeat));
}

}  // namespace orders

int main() {
  if (stackd_install() != 0) return 1;
  stackd_set_process_name("cpp-orders");
  std::thread(orders::Serve).join();
}
