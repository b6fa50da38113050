#include "daemon/export/text_stack.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "daemon/export/printable.h"
#include "daemon/export/wording.h"
#include "daemon/group/stack_end.h"

namespace stackd {
namespace {

// Recursion through more functions than this is printed as it is.
constexpr size_t kMaxCycleFrames = 8;
// Fewer repetitions are not worth a sentence.
constexpr size_t kMinRepetitions = 3;

using Line = std::string;

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string FrameText(const v1::Frame& frame) {
  if (frame.function().empty()) return Printable(frame.address() + " (" + Place(frame) + ")");
  std::string text = frame.function();
  if (!frame.file().empty()) text += " at " + BaseName(frame.file());
  if (!frame.file().empty() && frame.line() > 0) text += ":" + std::to_string(frame.line());
  text += " (" + frame.module() + ")";
  if (frame.origin() == v1::Frame::INLINED) text += " [inlined]";
  return Printable(text);
}

std::vector<Line> Lines(const v1::Stack& stack) {
  std::vector<Line> lines;
  lines.reserve(stack.frames_size());
  for (const v1::Frame& frame : stack.frames()) lines.push_back(FrameText(frame));
  return lines;
}

// How many times the `cycle` lines from `begin` stand there again right behind themselves.
size_t Repetitions(const std::vector<Line>& lines, size_t begin, size_t cycle) {
  size_t end = begin + cycle;
  while (end < lines.size() && lines[end] == lines[end - cycle]) ++end;
  return (end - begin) / cycle - 1;
}

class Writer {
 public:
  Writer(std::string_view indent, Piecewise* out) : indent_(indent), out_(*out) {}

  void Frame(size_t number, const Line& line) {
    char label[24];
    snprintf(label, sizeof(label), "#%-3zu", number);
    out_ << indent_ << label << (number > 999 ? " " : "") << line << "\n";
  }

  void Remark(std::string_view text) { out_ << indent_ << text << "\n"; }

 private:
  std::string_view indent_;
  Piecewise& out_;
};

}  // namespace

std::string Place(const v1::Frame& frame) {
  return frame.module_offset().empty() ? frame.module() : frame.module() + "+" + frame.module_offset();
}

void WriteStack(const v1::Stack& stack, std::string_view indent, Piecewise* out) {
  const std::vector<Line> lines = Lines(stack);
  Writer writer(indent, out);
  for (size_t i = 0; i < lines.size();) {
    size_t cycle = 1, repetitions = 0;
    for (; cycle <= std::min(kMaxCycleFrames, lines.size() - i); ++cycle) {
      repetitions = Repetitions(lines, i, cycle);
      if (repetitions >= kMinRepetitions) break;
    }
    if (repetitions < kMinRepetitions) {
      cycle = 1;
      repetitions = 0;
    }
    for (size_t k = 0; k < cycle; ++k) writer.Frame(i + k, lines[i + k]);
    i += cycle * (1 + repetitions);
    if (repetitions == 0) continue;
    const std::string what = cycle == 1 ? "the same frame" : "the same " + std::to_string(cycle) + " frames";
    writer.Remark("    … " + what + " " + Count(static_cast<int64_t>(repetitions), "more time") + ", to #" +
                  std::to_string(i - 1));
  }
  if (!IsWhole(stack)) writer.Remark("(stack ends here: " + Printable(StackEndInWords(stack)) + ")");
}

}  // namespace stackd
