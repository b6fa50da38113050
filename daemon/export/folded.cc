#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "daemon/export/export.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"
#include "daemon/export/text_stack.h"

namespace stackd {
namespace {

// Semicolons separate frames.
std::string Element(std::string text) {
  std::ranges::replace(text, ';', ':');
  return Printable(text);
}

std::string FrameElement(const v1::Frame& frame) {
  return Element(frame.function().empty() ? Place(frame) : frame.function());
}

// ";outermost;...;innermost". A recursion has each of its frames once, with its count.
std::string FrameElements(const v1::Stack& stack) {
  std::vector<std::string> elements;
  int64_t count = 0;
  int repeated = 0;  // frames from here on that belong to the recursion
  for (int i = 0; i < stack.frames_size(); ++i) {
    const v1::Frame& frame = stack.frames(i);
    if (stack.omitted_bytes() > 0 && i == stack.omitted_before()) elements.push_back("[" + GapInWords(stack) + "]");
    if (frame.repeat_count() > 0) {
      count = frame.repeat_count();
      repeated = frame.repeat_length();
    }
    elements.push_back(FrameElement(frame) + (repeated > 0 ? Times(count) : ""));
    if (repeated > 0) --repeated;
  }
  std::string text;
  for (auto element = elements.rbegin(); element != elements.rend(); ++element) text += ";" + *element;
  return text;
}

}  // namespace

void ExportFolded(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  std::unordered_map<int32_t, const std::string*> name_of_tid;
  for (const v1::Thread& thread : dump.threads()) name_of_tid.emplace(thread.tid(), &thread.name());
  const std::string process = Element(dump.process().display_name());

  for (const v1::StackGroup& group : dump.groups()) {
    if (!out.wanted()) return;
    if (group.is_agent()) continue;
    std::map<std::string, int> threads_by_name;
    for (int32_t tid : group.tids()) {
      const auto name = name_of_tid.find(tid);
      ++threads_by_name[name == name_of_tid.end() ? std::string() : *name->second];
    }
    const std::string frames = FrameElements(group.stack());
    for (const auto& [name, count] : threads_by_name) {
      out << process << ";" << Element(name) << frames << " " << std::to_string(count) << "\n";
    }
  }
}

}  // namespace stackd
