#include "daemon/managed/hotspot/java_threads.h"

namespace stackd::hotspot {
namespace {

constexpr uint32_t kMaxThreads = 1 << 16;

// The VM's own objects of its threads.
std::vector<uint64_t> Listed(ProcessMemory* memory, const Layout& layout) {
  std::vector<uint64_t> avmas;
  if (layout.thread_list_avma == kNone) {
    auto next = memory->Word(layout.first_thread_avma);
    for (uint32_t i = 0; next && *next != 0 && i < kMaxThreads; ++i) {
      avmas.push_back(*next);
      next = memory->Word(*next + layout.thread_next);
    }
    return avmas;
  }
  const auto list = memory->Word(layout.thread_list_avma);
  if (!list || *list == 0) return avmas;
  const auto count = memory->Value<uint32_t>(*list + layout.threads_length);
  const auto data = memory->Word(*list + layout.threads_data);
  if (!count || !data) return avmas;
  for (uint32_t i = 0; i < *count && i < kMaxThreads; ++i) {
    const auto at = memory->Word(*data + 8ull * i);
    if (!at) break;
    avmas.push_back(*at);
  }
  return avmas;
}

}  // namespace

std::vector<JavaThread> ReadJavaThreads(ProcessMemory* memory, const Layout& layout) {
  std::vector<JavaThread> threads;
  for (uint64_t avma : Listed(memory, layout)) {
    const auto word = [&](uint64_t offset) { return offset == kNone ? 0 : memory->Word(avma + offset).value_or(0); };
    JavaThread thread;
    thread.thread_avma = avma;
    const uint64_t os_thread = word(layout.thread_osthread);
    thread.tid = os_thread == 0 ? 0 : memory->Value<int32_t>(os_thread + layout.osthread_id).value_or(0);
    // It has not started, or has ended.
    if (thread.tid <= 0) continue;
    // From release 17 on a handle is between (OopHandle). Before, the field is the object.
    const uint64_t object = word(layout.thread_object);
    thread.object = object == 0 || layout.release < 17 ? object : memory->Word(object).value_or(0);
    const uint64_t current = word(layout.thread_virtual);
    thread.current = current == 0 ? 0 : memory->Word(current).value_or(0);
    thread.stack_end_avma = word(layout.thread_stack_base);
    thread.stack_begin_avma = thread.stack_end_avma - word(layout.thread_stack_size);
    thread.continuation_entry_avma = word(layout.thread_continuation_entry);
    thread.owner_id = word(layout.thread_owner_id);
    thread.pending_monitor_avma = word(layout.thread_pending_monitor);
    threads.push_back(thread);
  }
  return threads;
}

}  // namespace stackd::hotspot
