#include "daemon/analyze/findings/find_idle.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "daemon/analyze/names/thread_stop.h"
#include "daemon/analyze/waits/wait_words.h"

namespace stackd {
namespace {

using Finding = v1::Finding;
using Wait = v1::Wait;

constexpr size_t kMaxDetails = 10;

// "wait on condition variables": what idle threads do, several of them; nullptr for what is not idling.
const char* IdlingInWords(Wait::Kind kind) {
  switch (kind) {
    case Wait::CONDITION_VARIABLE:
      return "on condition variables";
    case Wait::SEMAPHORE:
      return "on semaphores";
    case Wait::BARRIER:
      return "at barriers";
    case Wait::ATOMIC:
      return "for atomics to change";
    case Wait::FUTURE:
      return "for futures";
    case Wait::FUTEX:
      return "on futexes";
    case Wait::JOIN:
      return "for threads to end";
    case Wait::EVENTS:
      return "for events";
    case Wait::READ:
      return "for data";
    case Wait::ACCEPT:
      return "for connections";
    case Wait::SLEEP:
      return "for time to pass";
    case Wait::CHILD:
      return "for child processes";
    case Wait::SIGNAL:
      return "for signals";
    case Wait::IPC:
      return "for messages of other processes";
    default:
      return nullptr;
  }
}

// Whether the wait is owed something, whose owner is not known. No work does that.
bool MustAnotherAct(const Wait& wait) {
  const bool is_of_futex = !wait.futex_operation().empty();
  return (wait.kind() == Wait::FUTEX && wait.owner() == Wait::NOT_RECORDED) ||
         (is_of_futex && wait.owner() == Wait::OTHER_PROCESS);
}

// The port of "127.0.0.1:5432"; 0: there is none.
uint32_t PortOf(std::string_view address) {
  uint32_t port = 0;
  const std::string_view digits = address.substr(address.rfind(':') + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return port;
}

// The server that a socket called "tcp 10.0.0.1:40414 -> 10.0.0.5:5432" asks; "": it is no such socket. Who connects gets a
// port of the kernel's range, and servers have lower ones (net.ipv4.ip_local_port_range).
std::string_view ServerOf(std::string_view fd_name) {
  constexpr std::string_view kTcp = "tcp", kArrow = " -> ";
  constexpr uint32_t kFirstOfKernel = 32'768;
  const size_t arrow = fd_name.find(kArrow);
  if (!fd_name.starts_with(kTcp) || arrow == fd_name.npos) return "";
  const std::string_view server = fd_name.substr(arrow + kArrow.size());
  const uint32_t port = PortOf(server);
  return port != 0 && port < kFirstOfKernel && PortOf(fd_name.substr(0, arrow)) >= kFirstOfKernel ? server : "";
}

// Servers that idle threads may wait for an answer of, and how many threads each.
class AskedServers {
 public:
  void Add(const Wait& wait) {
    std::set<std::string_view> of_thread;
    for (const v1::WaitedFd& fd : wait.fds()) of_thread.insert(ServerOf(fd.name()));
    of_thread.erase("");
    for (const std::string_view server : of_thread) ++threads_[std::string(server)];
  }

  // "3 may wait for an answer of 10.0.0.5:5432", most threads first.
  std::vector<std::string> InWords() const {
    std::vector<std::pair<size_t, std::string>> servers;
    for (const auto& [server, threads] : threads_) servers.emplace_back(threads, server);
    std::ranges::stable_sort(servers, std::greater(), &std::pair<size_t, std::string>::first);
    std::vector<std::string> words;
    for (const auto& [threads, server] : servers) {
      words.push_back(std::to_string(threads) + " may wait for an answer of " + server);
    }
    return words;
  }

 private:
  std::map<std::string, size_t> threads_;
};

struct IdleGroup {
  size_t count = 0;
  const v1::Thread* first = nullptr;
};

// The first word of the sentence has its verb: "3 wait on ..., 1 for ...".
std::string CountsInWords(const std::map<Wait::Kind, size_t>& counts) {
  std::vector<std::pair<size_t, std::string>> parts;
  for (const auto& [kind, count] : counts) parts.emplace_back(count, IdlingInWords(kind));
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [count, what] : parts) {
    text +=
        text.empty() ? (count == 1 ? "1 waits " : std::to_string(count) + " wait ") : ", " + std::to_string(count) + " ";
    text += what;
  }
  return text;
}

void AddStopped(const std::vector<int32_t>& tids, const std::string& how, Finding::Severity severity, WaitScene* scene,
                std::vector<Finding>* findings) {
  if (tids.empty()) return;
  const bool all = std::cmp_equal(tids.size(), scene->dump().threads_size());
  Finding& finding = findings->emplace_back();
  finding.set_kind(Finding::STOPPED);
  finding.set_severity(severity);
  finding.set_explanation((all ? "the process is " : ThreadsInWords(tids.size()) + (tids.size() == 1 ? " is " : " are ")) +
                          how);
  for (int32_t tid : tids) {
    finding.add_tids(tid);
    scene->SetExplained(tid);
  }
}

}  // namespace

void FindStopped(WaitScene* scene, std::vector<Finding>* findings) {
  std::vector<int32_t> by_signal, by_debugger, frozen, silent;
  for (const ThreadCapture& captured : scene->capture().threads) {
    if (IsFrozen(captured)) {
      frozen.push_back(captured.tid);
    } else if (IsStopped(captured)) {
      (IsInDebugger(captured) ? by_debugger : by_signal).push_back(captured.tid);
    } else if (captured.status == ThreadStatus::kTimedOut && captured.kernel_state != 'R') {
      silent.push_back(captured.tid);
    }
  }
  AddStopped(by_signal, "stopped by a signal: SIGCONT lets it go on", Finding::HANG, scene, findings);
  AddStopped(frozen, "frozen with its cgroup", Finding::HANG, scene, findings);
  AddStopped(by_debugger, "stopped by a debugger", Finding::HARMLESS, scene, findings);
  if (silent.size() == scene->capture().threads.size()) {
    AddStopped(silent, "as if stopped, for no thread answered: its cgroup may be frozen", Finding::SUSPICIOUS, scene,
               findings);
  }
}

void FindIdle(WaitScene* scene, std::vector<Finding>* findings) {
  std::map<Wait::Kind, size_t> counts;
  std::map<std::tuple<std::string, std::string>, IdleGroup> groups;  // by what they do, and where
  AskedServers servers;
  Finding finding;
  for (const v1::Thread& thread : scene->dump().threads()) {
    if (!thread.has_wait() || scene->IsExplained(thread.tid())) continue;
    const Wait& wait = thread.wait();
    if (IdlingInWords(wait.kind()) == nullptr || MustAnotherAct(wait)) continue;
    ++counts[wait.kind()];
    servers.Add(wait);
    finding.add_tids(thread.tid());
    IdleGroup& group = groups[{wait.explanation(), scene->Place(thread)}];
    ++group.count;
    if (group.first == nullptr) group.first = &thread;
  }
  if (counts.empty()) return;
  finding.set_kind(Finding::IDLE);
  finding.set_severity(Finding::HARMLESS);
  const size_t idle = static_cast<size_t>(finding.tids_size());
  const std::vector<std::string> asked = servers.InWords();
  finding.set_explanation(ThreadsInWords(idle) + (idle == 1 ? " is idle: " : " are idle: ") + CountsInWords(counts) +
                          (asked.empty() ? "" : "; " + asked[0]));
  for (size_t i = 1; i < asked.size() && i < kMaxDetails; ++i) finding.add_details(asked[i]);
  std::vector<const IdleGroup*> largest;
  for (const auto& [key, group] : groups) {
    if (group.count > 1) largest.push_back(&group);
  }
  std::ranges::stable_sort(largest, std::greater(), &IdleGroup::count);
  for (size_t i = 0; i < largest.size() && i < kMaxDetails; ++i) {
    const std::string& place = scene->Place(*largest[i]->first);
    finding.add_details(ThreadsInWords(largest[i]->count) + (place.empty() ? "" : " in " + place) + ": each " +
                        largest[i]->first->wait().explanation());
  }
  findings->push_back(std::move(finding));
}

}  // namespace stackd
