// The input is memory of a process with Ruby: the version, then the threads, then words. A word of 16 bits stands for one
// of
// 64. It is an address in this memory if its first bit is set, else a number. 0x7fff is the address of the name "mutex".
// All that is said of a thread must be of one that is there, in bounded time.
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/managed/ruby/ruby_reader.h"

namespace stackd {
namespace {

constexpr uint64_t kMemoryAvma = 0x10000;
constexpr size_t kMaxWords = 1 << 15;
constexpr uint64_t kNameAvma = kMemoryAvma + 8 * kMaxWords;
constexpr char kName[8] = "mutex";
constexpr uint64_t kVersions[] = {30102, 30203, 30308, 30405, 30000};
constexpr size_t kThreads = 3;
constexpr size_t kHeaderBytes = 1 + 2 * kThreads;
constexpr int64_t kDeadlineNs = 500 * kNsPerMs;
// Bound for an input that is read until the deadline, on a machine that does other things besides.
constexpr int64_t kLongestNs = 20 * kDeadlineNs;

void Check(bool holds) {
  if (!holds) abort();
}

uint16_t Half(std::span<const uint8_t> bytes, size_t at) { return static_cast<uint16_t>(bytes[at] | bytes[at + 1] << 8); }

uint64_t AddressOf(uint16_t index) { return kMemoryAvma + 8 * static_cast<uint64_t>(index & (kMaxWords - 1)); }

std::string Memory(std::span<const uint8_t> bytes) {
  std::string memory;
  for (size_t i = 0; i + 1 < bytes.size() && memory.size() < 8 * kMaxWords; i += 2) {
    const uint16_t half = Half(bytes, i);
    const uint64_t word = half == 0x7fff ? kNameAvma : (half & 0x8000) != 0 ? AddressOf(half) : half;
    memory.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  return memory;
}

int64_t ReadPart(std::string_view part, uint64_t offset, std::span<uint8_t> bytes) {
  if (offset >= part.size()) return -EIO;
  const size_t got = std::min(part.size() - offset, bytes.size());
  memcpy(bytes.data(), part.data() + offset, got);
  return static_cast<int64_t>(got);
}

Capture CaptureOf(std::span<const uint8_t> header) {
  Capture capture;
  for (size_t i = 0; i < kThreads; ++i) {
    ThreadCapture& thread = capture.threads.emplace_back();
    thread.tid = 7 + static_cast<int32_t>(i);
    thread.call = SystemCall{.number = SYS_futex};
    ManagedTrace& trace = thread.traces.emplace_back();
    trace.runtime = STACKD_RUNTIME_RUBY;
    trace.version = kVersions[header[0] % std::size(kVersions)];
    trace.instance_avma = AddressOf(Half(header, 1 + 2 * i));
  }
  return capture;
}

void CheckWaits(const std::vector<ManagedWait>& waits) {
  for (const ManagedWait& wait : waits) {
    Check(wait.waiter_tid >= 7 && wait.waiter_tid < 7 + static_cast<int32_t>(kThreads) && !wait.lock.empty());
  }
}

}  // namespace
}  // namespace stackd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stackd;
  if (size < kHeaderBytes) return 0;
  const std::span<const uint8_t> input(data, size);
  const std::string memory = Memory(input.subspan(kHeaderBytes));
  ProcessFiles files;
  files.SetImage(
      [&memory](uint64_t avma, std::span<uint8_t> bytes) {
        if (avma >= kNameAvma) return ReadPart({kName, sizeof(kName)}, avma - kNameAvma, bytes);
        return avma < kMemoryAvma ? -EIO : ReadPart(memory, avma - kMemoryAvma, bytes);
      },
      "");
  Capture capture = CaptureOf(input);
  const int64_t begin_ns = MonotonicNs();
  ManagedFacts facts;
  RubyReader().Read({capture, &files, begin_ns + kDeadlineNs}, &facts);
  CheckWaits(facts.waits);
  for (const auto& [tid, thread] : facts.threads) {
    Check(tid >= 7 && tid < 7 + static_cast<int32_t>(kThreads) && ToValidUtf8(thread.name) == thread.name);
  }
  capture.managed = facts;
  std::vector<ThreadWait> sleeping;
  for (const ThreadCapture& thread : capture.threads) {
    sleeping.push_back({.tid = thread.tid, .rsp_avma = kMemoryAvma, .call = thread.call});
  }
  std::vector<ManagedWait> waits;
  RubyReader().ReadWaits({capture, facts.waits, sleeping, files, MonotonicNs() + kDeadlineNs}, &waits);
  CheckWaits(waits);
  Check(MonotonicNs() - begin_ns < kLongestNs);
  return 0;
}
