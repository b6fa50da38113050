#include "daemon/process/wait_facts.h"

#include <poll.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/capture/waited_on.h"
#include "daemon/process/futex_words.h"

namespace stackd {
namespace {

// Limits for one thread.
constexpr uint32_t kMaxPolled = 64;
constexpr uint32_t kMaxSelected = 1024;
// Limit for one process.
constexpr size_t kMaxPolledFds = 20'000;

std::vector<int32_t> ReadPollTable(const ProcessFiles& files, const FdTable& table) {
  std::array<pollfd, kMaxPolled> entries;
  const size_t wanted = std::min(table.fd_count, kMaxPolled) * sizeof(pollfd);
  const size_t got = files.ReadSome(table.avma[0], {reinterpret_cast<uint8_t*>(entries.data()), wanted});
  std::vector<int32_t> fds;
  for (size_t i = 0; i < got / sizeof(pollfd); i++) {
    // The kernel skips those that are negative.
    if (entries[i].fd >= 0) fds.push_back(entries[i].fd);
  }
  return fds;
}

std::vector<int32_t> ReadSelectTable(const ProcessFiles& files, const FdTable& table) {
  std::array<uint64_t, kMaxSelected / 64> any{};
  const uint32_t fd_count = std::min(table.fd_count, kMaxSelected);
  for (uint64_t avma : table.avma) {
    if (avma == 0) continue;
    std::array<uint64_t, kMaxSelected / 64> set{};
    // The kernel reads whole words too.
    files.ReadSome(avma, {reinterpret_cast<uint8_t*>(set.data()), (fd_count + 63) / 64 * sizeof(uint64_t)});
    for (size_t i = 0; i < set.size(); i++) any[i] |= set[i];
  }
  std::vector<int32_t> fds;
  for (uint32_t fd = 0; fd < fd_count && fds.size() < kMaxPolled; fd++) {
    if ((any[fd / 64] >> fd % 64 & 1) != 0) fds.push_back(static_cast<int32_t>(fd));
  }
  return fds;
}

std::vector<int32_t> ReadFdTable(const ProcessFiles& files, const FdTable& table) {
  auto fds = table.is_poll ? ReadPollTable(files, table) : ReadSelectTable(files, table);
  std::ranges::sort(fds);
  fds.erase(std::unique(fds.begin(), fds.end()), fds.end());
  return fds;
}

}  // namespace

bool WaitsInMemory(const SystemCall& call) { return WaitedFutex(call) || WaitedFdTable(call); }

WaitFacts ReadWaitFacts(const ProcessFiles& files, RwlockLayout layout, std::span<const ThreadCall> calls,
                        int64_t deadline_ns) {
  WaitFacts facts;
  std::set<uint64_t> futexes;
  for (const auto& [tid, call] : calls) {
    if (auto futex = WaitedFutex(call)) futexes.insert(*futex);
  }
  facts.futex_count = futexes.size();
  facts.futexes = ReadFutexWords(files, layout, std::vector(futexes.begin(), futexes.end()));
  for (const auto& [tid, call] : calls) {
    if (MonotonicNs() >= deadline_ns) break;
    if (auto table = WaitedFdTable(call)) facts.polled[tid] = ReadFdTable(files, *table);
  }
  return facts;
}

std::vector<ThreadCall> AddWaitFacts(const MemoryReader& memory, int64_t deadline_ns, Capture* capture) {
  std::vector<ThreadCall> in_memory;
  for (ThreadCapture& thread : capture->threads) {
    if (!thread.call) continue;
    thread.waited_fds = WaitedFds(*thread.call);
    if (WaitsInMemory(*thread.call)) in_memory.push_back({thread.tid, *thread.call});
  }
  if (in_memory.empty()) return in_memory;
  auto facts = std::make_shared<WaitFacts>();
  const RwlockLayout layout = RwlockLayoutOf(*capture->map);
  const bool read = memory.Run(
      deadline_ns, [=](const ProcessFiles& files) { *facts = ReadWaitFacts(files, layout, in_memory, deadline_ns); });
  if (!read) {
    capture->notes.push_back("what locks its threads wait for, and who has them, could not be read in time");
    return {};
  }
  if (facts->futex_count > kMaxFutexWords) {
    capture->notes.push_back("its threads wait on " + std::to_string(facts->futex_count) +
                             " futexes: " + std::to_string(kMaxFutexWords) + " futexes were looked at");
  }
  capture->futexes = std::move(facts->futexes);
  size_t polled_fds = 0;
  for (ThreadCapture& thread : capture->threads) {
    const auto polled = facts->polled.find(thread.tid);
    if (polled == facts->polled.end()) continue;
    polled->second.resize(std::min(polled->second.size(), kMaxPolledFds - polled_fds));
    polled_fds += polled->second.size();
    thread.waited_fds = std::move(polled->second);
  }
  return in_memory;
}

}  // namespace stackd
