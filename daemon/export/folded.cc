#include <algorithm>
#include <ranges>

#include "daemon/export/export.h"
#include "daemon/export/folded_line.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"

namespace stackd {

std::string FoldedElement(std::string name) {
  std::ranges::replace(name, ';', ':');
  return Printable(name);
}

std::string FoldedFrames(const std::vector<FlatFrame>& innermost_first) {
  std::string text;
  for (const FlatFrame& frame : innermost_first | std::views::reverse) text += ";" + FoldedElement(frame.name);
  return text;
}

void ExportFolded(const v1::Dump& dump, const Sink& sink) {
  Piecewise out(sink);
  const ThreadNames names = NamesOfThreads(dump);
  const std::string process = FoldedElement(dump.process().display_name());

  for (const v1::StackGroup& group : dump.groups()) {
    if (!out.wanted()) return;
    if (group.is_agent()) continue;
    const std::string frames = FoldedFrames(FlatFrames(group.stack()));
    for (const auto& [name, count] : CountsByName(group, names)) {
      out << process << ";" << FoldedElement(std::string(name)) << frames << " " << std::to_string(count) << "\n";
    }
  }
}

}  // namespace stackd
