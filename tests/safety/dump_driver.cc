// A daemon that does nothing but capture, for the tests of the agent.
//
//     dump_driver DIR         serves DIR; commands on stdin, one a line:
//       hammer SECONDS NAME [QUIET]   captures every process of that name, again and again; prints what the captures came
//       to once NAME [QUIET]             one capture of the newest process of that name; prints each thread wait NAME until
//       a process of that name is connected
//
// QUIET: prefer or only; without it all threads are signalled. Each answer ends with a line "end".
#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "daemon/base/clock.h"
#include "daemon/collect/collector.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

constexpr int64_t kDeadlineNs = 2 * kNsPerSecond;
constexpr std::array<const char*, 11> kStatusNames = {"0",          "captured",    "blocked",   "uninterruptible",
                                                      "stopped",    "exited",      "timed_out", "ring_full",
                                                      "queue_full", "agent_fault", "running"};

const char* Name(ThreadStatus status) { return kStatusNames[static_cast<size_t>(status)]; }

std::vector<std::string> IdsOf(const Collector& collector, const std::string& name) {
  std::vector<std::string> ids;
  for (const auto& process : collector.Processes()) {
    if (process.display_name == name) ids.push_back(process.id);
  }
  return ids;
}

void Hammer(Collector* collector, const std::string& name, int64_t seconds, Quiet quiet) {
  std::map<std::string, int64_t> statuses;
  std::vector<int64_t> durations_ns;
  std::vector<int64_t> pauses_ns;
  int64_t partial = 0;
  int64_t unaccounted = 0;
  int64_t until_ns = MonotonicNs() + seconds * kNsPerSecond;
  while (MonotonicNs() < until_ns) {
    auto ids = IdsOf(*collector, name);
    if (ids.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const auto& id : ids) {
      auto capture = collector->CaptureProcess(id, {.deadline_ns = MonotonicNs() + kDeadlineNs, .quiet = quiet});
      if (!capture) continue;
      durations_ns.push_back((*capture)->duration_ns);
      partial += (*capture)->partial;
      for (const auto& note : (*capture)->notes) unaccounted += note.find("threads are missing") != std::string::npos;
      for (const auto& thread : (*capture)->threads) {
        statuses[Name(thread.status)]++;
        if (thread.status == ThreadStatus::kCaptured) pauses_ns.push_back(thread.pause_ns);
      }
    }
  }
  std::cout << "captures " << durations_ns.size() << "\npartial " << partial << "\nunaccounted " << unaccounted << "\n";
  for (const auto& [status, count] : statuses) std::cout << status << " " << count << "\n";
  auto print_percentiles = [](const char* what, std::vector<int64_t>* values) {
    if (values->empty()) return;
    std::ranges::sort(*values);
    std::cout << what << "_p50_us " << (*values)[values->size() / 2] / 1000 << "\n";
    std::cout << what << "_p99_us " << (*values)[values->size() * 99 / 100] / 1000 << "\n";
    std::cout << what << "_max_us " << values->back() / 1000 << "\n";
  };
  print_percentiles("duration", &durations_ns);
  print_percentiles("pause", &pauses_ns);
  for (const auto& [counter, value] : collector->Counters()) std::cout << "counter_" << counter << " " << value << "\n";
}

void Once(Collector* collector, const std::string& name, Quiet quiet) {
  auto ids = IdsOf(*collector, name);
  if (ids.empty()) {
    std::cout << "error not connected\n";
    return;
  }
  auto capture = collector->CaptureProcess(ids.front(), {.deadline_ns = MonotonicNs() + kDeadlineNs, .quiet = quiet});
  if (!capture) {
    std::cout << "error " << capture.error().message << "\n";
    return;
  }
  std::cout << "partial " << (*capture)->partial << "\nduration_us " << (*capture)->duration_ns / 1000 << "\n";
  for (const auto& note : (*capture)->notes) std::cout << "note " << note << "\n";
  for (const auto& thread : (*capture)->threads) {
    std::cout << "thread " << thread.tid << " " << Name(thread.status) << " " << thread.has_stack << " " << thread.name
              << "\n";
  }
}

void WaitFor(const Collector& collector, const std::string& name) {
  int64_t give_up_ns = MonotonicNs() + 10 * kNsPerSecond;
  while (IdsOf(collector, name).empty()) {
    if (MonotonicNs() > give_up_ns) {
      std::cout << "error not connected\n";
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int Run(const std::string& dir) {
  auto collector = Collector::Start({.dir = dir});
  if (!collector) {
    std::cerr << collector.error().message << "\n";
    return 1;
  }
  std::cout << "end" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    std::string name;
    std::string how;
    int64_t seconds = 0;
    words >> command;
    if (command == "hammer") words >> seconds;
    words >> name >> how;
    const Quiet quiet = how == "prefer" ? Quiet::kPrefer : how == "only" ? Quiet::kOnly : Quiet::kNever;
    if (command == "hammer") Hammer(collector->get(), name, seconds, quiet);
    if (command == "once") Once(collector->get(), name, quiet);
    if (command == "wait") WaitFor(**collector, name);
    std::cout << "end" << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace stackd

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  // On stderr: answers are on stdout.
  stackd::StartLog(stackd::LogFormat::kText, stackd::LogLevel::kError);
  return stackd::Run(argv[1]);
}
