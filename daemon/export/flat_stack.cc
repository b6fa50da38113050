#include "daemon/export/flat_stack.h"

#include "daemon/export/text_stack.h"

namespace stackd {

std::vector<FlatFrame> FlatFrames(const v1::Stack& stack) {
  std::vector<FlatFrame> frames;
  frames.reserve(stack.frames_size());
  int64_t count = 0;
  int repeated = 0;  // frames from here on that belong to the recursion
  for (int i = 0; i < stack.frames_size(); ++i) {
    const v1::Frame& frame = stack.frames(i);
    if (stack.omitted_bytes() > 0 && i == stack.omitted_before())
      frames.push_back({"[" + GapInWords(stack) + "]", nullptr});
    if (frame.repeat_count() > 0) {
      count = frame.repeat_count();
      repeated = frame.repeat_length();
    }
    std::string name = frame.function().empty() ? Place(frame) : frame.function();
    if (repeated > 0) name += Times(count);
    frames.push_back({std::move(name), &frame});
    if (repeated > 0) --repeated;
  }
  return frames;
}

std::string NoStackInWords(std::string_view state) {
  return state.empty() ? "[no stack]" : "[no stack: " + std::string(state) + "]";
}

ThreadNames NamesOfThreads(const v1::Dump& dump) {
  ThreadNames names;
  for (const v1::Thread& thread : dump.threads()) names.emplace(thread.tid(), thread.name());
  return names;
}

std::map<std::string_view, int> CountsByName(const v1::StackGroup& group, const ThreadNames& names) {
  std::map<std::string_view, int> counts;
  for (int32_t tid : group.tids()) {
    const auto name = names.find(tid);
    ++counts[name == names.end() ? std::string_view() : name->second];
  }
  return counts;
}

}  // namespace stackd
