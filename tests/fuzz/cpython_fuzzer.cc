// The input is a version and the heap of a CPython that begins with its interpreter. What is found there is bounded, and so
// is the time; texts can be shown.
//
// A word whose highest byte is 0xab is an address in the heap: its low 16 bits say where. All others are as they stand.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <array>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/managed/cpython/coroutine_chain.h"
#include "daemon/managed/cpython/task_finder.h"

namespace stackd {
namespace {

constexpr size_t kHeapBytes = 1 << 16;
constexpr size_t kMaxTasks = 100;
constexpr size_t kMaxLinks = 256;

// On pages of its own, in this process, whose memory is read as that of another one.
alignas(4096) std::array<uint8_t, kHeapBytes> heap;

void Check(bool holds) {
  if (!holds) abort();
}

void FillHeap(const uint8_t* data, size_t size) {
  heap = {};
  memcpy(heap.data(), data, std::min(size, heap.size()));
  for (size_t at = 0; at + sizeof(uint64_t) <= heap.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, &heap[at], sizeof(word));
    if (word >> 56 != 0xab) continue;
    word = reinterpret_cast<uint64_t>(heap.data()) + (word & 0xffff);
    memcpy(&heap[at], &word, sizeof(word));
  }
}

const ProcessFiles& OwnMemory() {
  static const ProcessFiles* const files = [] {
    auto* own = new ProcessFiles;
    Fd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    Check(own->SetMemory(&memory));
    return own;
  }();
  return *files;
}

}  // namespace
}  // namespace stackd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stackd;
  if (size == 0) return 0;
  CpythonObjects objects(OwnMemory());
  if (!objects.OpenVersion(CpythonObjects::kFirstVersion + data[0] % 6)) abort();
  FillHeap(data + 1, size - 1);
  const FoundTasks found =
      FindTasks(&objects, reinterpret_cast<uint64_t>(heap.data()), kMaxTasks, MonotonicNs() + kNsPerSecond);
  Check(found.avmas.size() <= kMaxTasks);
  const CoroutineReader coroutines(&objects);
  for (const uint64_t task_avma : found.avmas) {
    const auto chain = coroutines.ReadStanding(objects.Pointer(task_avma + found.coroutine_offset));
    Check(chain && chain->links.size() <= kMaxLinks);
    for (const CoroutineChain::Link& link : chain->links) {
      const CpythonObjects::Function* function = objects.FunctionOf(link.code_avma);
      if (function == nullptr) continue;
      Check(!function->name.empty() && ToValidUtf8(function->name) == function->name);
      Check(function->LineAt(link.position) >= 0);
    }
  }
  return 0;
}
