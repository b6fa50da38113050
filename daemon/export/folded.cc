#include <algorithm>
#include <map>
#include <unordered_map>

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

}  // namespace

void ExportFolded(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  std::unordered_map<int32_t, const std::string*> name_of_tid;
  for (const v1::Thread& thread : dump.threads()) name_of_tid.emplace(thread.tid(), &thread.name());
  const std::string process = Element(dump.process().display_name());

  for (const v1::StackGroup& group : dump.groups()) {
    if (!out.wanted()) return;
    std::map<std::string, int> threads_by_name;
    for (int32_t tid : group.tids()) {
      const auto name = name_of_tid.find(tid);
      ++threads_by_name[name == name_of_tid.end() ? std::string() : *name->second];
    }
    std::string frames;
    for (auto frame = group.stack().frames().rbegin(); frame != group.stack().frames().rend(); ++frame) {
      frames += ";" + FrameElement(*frame);
    }
    for (const auto& [name, count] : threads_by_name) {
      out << process << ";" << Element(name) << frames << " " << std::to_string(count) << "\n";
    }
  }
}

}  // namespace stackd
