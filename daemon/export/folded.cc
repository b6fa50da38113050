#include <algorithm>
#include <ranges>

#include "daemon/export/export.h"
#include "daemon/export/flat_stack.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

// Semicolons separate frames.
std::string Element(std::string text) {
  std::ranges::replace(text, ';', ':');
  return Printable(text);
}

// ";outermost;...;innermost"
std::string FrameElements(const v1::Stack& stack) {
  std::string text;
  for (const FlatFrame& frame : FlatFrames(stack) | std::views::reverse) text += ";" + Element(frame.name);
  return text;
}

}  // namespace

void ExportFolded(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  const ThreadNames names = NamesOfThreads(dump);
  const std::string process = Element(dump.process().display_name());

  for (const v1::StackGroup& group : dump.groups()) {
    if (!out.wanted()) return;
    if (group.is_agent()) continue;
    const std::string frames = FrameElements(group.stack());
    for (const auto& [name, count] : CountsByName(group, names)) {
      out << process << ";" << Element(std::string(name)) << frames << " " << std::to_string(count) << "\n";
    }
  }
}

}  // namespace stackd
