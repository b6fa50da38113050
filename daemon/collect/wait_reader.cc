#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/collect/wait_collector.h"
#include "daemon/process/futex_words.h"

namespace stackd {
namespace {

// A process that tells by itself what its threads wait for answers within a millisecond or two, if its helper has a CPU.
constexpr int64_t kAskWaitsNs = kNsPerSecond;
// Some microseconds where nothing is in the way.
constexpr int64_t kReadFutexesNs = 100 * kNsPerMs;

}  // namespace

Result<WaitFacts> WaitReader::ReadFacts(RwlockLayout layout, std::vector<ThreadCall> calls, int64_t deadline_ns) const {
  constexpr std::string_view kWhat = "what locks its threads wait for, and who has them, ";
  if (process_->TellsWaits()) {
    if (process_->waker().is_filtered() || process_->IsStopped()) {
      return Error(Code::kUnavailable, std::string(kWhat) + "is not known: the process tells it, and cannot answer now");
    }
    return asked_waits_.Facts(layout, calls, std::min(deadline_ns, MonotonicNs() + kAskWaitsNs));
  }
  if (!process_->files().has_memory()) {
    return Error(Code::kFailedPrecondition,
                 std::string(kWhat) + "cannot be read: the process may not open its own memory (not dumpable)");
  }
  auto facts = std::make_shared<WaitFacts>();
  const bool read = process_->memory()->Run(deadline_ns, [=, calls = std::move(calls)](const ProcessFiles& files) {
    *facts = ReadWaitFacts(files, layout, calls, deadline_ns);
  });
  if (read) return std::move(*facts);
  return Error(Code::kUnavailable, std::string(kWhat) +
                                       "could not be read in time: the kernel holds up whoever reads the memory of the "
                                       "process");
}

Result<std::vector<FutexWord>> WaitReader::ReadFutexes(std::vector<FutexWait> waits) const {
  const RwlockLayout layout = modules_->LockLayout();
  const int64_t deadline_ns = MonotonicNs() + kReadFutexesNs;
  if (process_->TellsWaits() && process_->waker().answers()) return asked_waits_.Words(layout, waits, deadline_ns);
  const std::string name = "processes/" + process_->id();
  if (!process_->files().has_memory()) {
    return Error(Code::kUnavailable, name + " may not open its own memory (not dumpable)");
  }
  std::vector<uint64_t> avmas;
  for (const FutexWait& wait : waits) avmas.push_back(wait.avma);
  auto words = std::make_shared<std::vector<FutexWord>>();
  const bool read = process_->memory()->Run(deadline_ns, [=, avmas = std::move(avmas)](const ProcessFiles& files) {
    *words = ReadFutexWords(files, layout, avmas);
  });
  if (!read) return Error(Code::kUnavailable, "the kernel holds up whoever reads the memory of " + name);
  return std::move(*words);
}

Result<SigtermSigns> WaitReader::ReadSigtermSigns() const {
  const auto is_pending = process_->files().HasPendingSigterm();
  if (!is_pending) {
    return Error(Code::kUnavailable, "processes/" + process_->id() + " has ended, or passed no folder");
  }
  return SigtermSigns{.taken_count = ReadSigtermCount(), .is_pending = *is_pending};
}

std::optional<uint64_t> WaitReader::ReadSigtermCount() const {
  const int64_t deadline_ns = MonotonicNs() + kReadFutexesNs;
  if (process_->TellsWaits()) {
    if (!process_->waker().answers() || process_->IsStopped()) return std::nullopt;
    return asked_waits_.SigtermCount(deadline_ns);
  }
  uint64_t avma = __atomic_load_n(&ring_->header()->sigterm_count_avma, __ATOMIC_RELAXED);
  if (avma == 0) avma = process_->waker().sigterm_count_avma();
  if (avma == 0 || !process_->files().has_memory()) return std::nullopt;
  auto count = std::make_shared<std::optional<uint64_t>>();
  const bool read = process_->memory()->Run(deadline_ns, [count, avma](const ProcessFiles& files) {
    uint64_t word = 0;
    const auto bytes = std::span(reinterpret_cast<uint8_t*>(&word), sizeof(word));
    if (files.ReadSome(avma, bytes) == sizeof(word)) *count = word;
  });
  return read ? *count : std::nullopt;
}

}  // namespace stackd
