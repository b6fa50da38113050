#include "daemon/export/text_stack.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

#include "daemon/analyze/crash/memory_place.h"
#include "daemon/assemble/stack_end.h"
#include "daemon/export/printable.h"
#include "daemon/export/wording.h"

namespace stackd {
namespace {

// Recursion through more functions than this is printed as it is.
constexpr size_t kMaxCycleFrames = 8;
// Fewer repetitions are not worth a sentence.
constexpr size_t kMinRepetitions = 3;

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string FrameText(const v1::Frame& frame) {
  if (frame.function().empty()) return Printable(frame.address() + " (" + Place(frame) + ")");
  std::string text = frame.function();
  if (!frame.file().empty()) text += " at " + BaseName(frame.file());
  if (!frame.file().empty() && frame.line() > 0) text += ":" + std::to_string(frame.line());
  text += " (" + (frame.module().empty() ? LanguageInWords(frame.language()) : frame.module()) + ")";
  if (frame.origin() == v1::Frame::INLINED) text += " [inlined]";
  if (frame.origin() == v1::Frame::RUNTIME_UNPLACED) text += " [called somewhere above]";
  return Printable(text);
}

std::vector<std::string> Lines(const v1::Stack& stack) {
  std::vector<std::string> lines;
  lines.reserve(stack.frames_size());
  for (const v1::Frame& frame : stack.frames()) lines.push_back(FrameText(frame));
  return lines;
}

// How many times the first `cycle` lines stand there again right behind themselves.
size_t Repetitions(std::span<const std::string> lines, size_t cycle) {
  size_t end = cycle;
  while (end < lines.size() && lines[end] == lines[end - cycle]) ++end;
  return end / cycle - 1;
}

class StackWriter {
 public:
  StackWriter(const v1::Stack& stack, std::string_view indent, Piecewise* out)
      : stack_(stack), lines_(Lines(stack)), indent_(indent), out_(*out) {}

  void Run() {
    for (size_t i = 0; i < lines_.size();) {
      if (HasGapBefore(i)) Remark("    … " + GapInWords(stack_));
      i = FrameAt(i).repeat_count() > 0 ? CountedRun(i) : EqualLines(i);
    }
    if (!IsWhole(stack_)) Remark("(stack ends here: " + Printable(StackEndInWords(stack_)) + ")");
  }

 private:
  const v1::Frame& FrameAt(size_t i) const { return stack_.frames(static_cast<int>(i)); }
  bool HasGapBefore(size_t i) const { return stack_.omitted_bytes() > 0 && std::cmp_equal(i, stack_.omitted_before()); }

  // Where lines must not be compared with what comes before.
  size_t EndOfPlainFrames(size_t begin) const {
    size_t end = begin + 1;
    while (end < lines_.size() && FrameAt(end).repeat_count() == 0 && !HasGapBefore(end)) ++end;
    return end;
  }

  // Recursion as it was folded when the dump was made. Returns where the lines behind it begin.
  size_t CountedRun(size_t begin) {
    const size_t length = std::clamp<size_t>(FrameAt(begin).repeat_length(), 1, lines_.size() - begin);
    const int64_t count = FrameAt(begin).repeat_count();
    if (length == 1) {
      Line(number_, lines_[begin] + Times(count));
    } else {
      for (size_t k = 0; k < length; ++k) Line(number_ + k, lines_[begin + k]);
    }
    number_ += static_cast<uint64_t>(count) * length;
    if (length > 1) {
      Remark("    … these " + std::to_string(length) + " frames" + Times(count) + ", to #" + std::to_string(number_ - 1));
    }
    return begin + length;
  }

  // A frame, or a few that stand there several times. Returns where the lines behind them begin.
  size_t EqualLines(size_t begin) {
    const std::span lines = std::span(lines_).subspan(begin, EndOfPlainFrames(begin) - begin);
    size_t cycle = 1, repetitions = 0;
    for (; cycle <= std::min(kMaxCycleFrames, lines.size()); ++cycle) {
      repetitions = Repetitions(lines, cycle);
      if (repetitions >= kMinRepetitions) break;
    }
    if (repetitions < kMinRepetitions) {
      cycle = 1;
      repetitions = 0;
    }
    for (size_t k = 0; k < cycle; ++k) Line(number_ + k, lines[k]);
    number_ += cycle * (1 + repetitions);
    if (repetitions > 0) {
      const std::string what = cycle == 1 ? "the same frame" : "the same " + std::to_string(cycle) + " frames";
      Remark("    … " + what + " " + Count(static_cast<int64_t>(repetitions), "more time") + ", to #" +
             std::to_string(number_ - 1));
    }
    return begin + cycle * (1 + repetitions);
  }

  void Line(uint64_t number, const std::string& text) {
    char label[32];
    snprintf(label, sizeof(label), "#%-3lu", number);
    out_ << indent_ << label << (number > 99 ? " " : "") << text << "\n";
  }

  void Remark(std::string_view text) { out_ << indent_ << text << "\n"; }

  const v1::Stack& stack_;
  const std::vector<std::string> lines_;
  const std::string_view indent_;
  Piecewise& out_;
  // The number of the next frame, counting those that are not shown.
  uint64_t number_ = 0;
};

}  // namespace

std::string Times(int64_t count) { return " × " + Grouped(count); }

std::string GapInWords(const v1::Stack& stack) {
  return BytesInWords(static_cast<uint64_t>(stack.omitted_bytes())) + " of the stack are not shown here: not copied";
}

std::string Place(const v1::Frame& frame) {
  return frame.module_offset().empty() ? frame.module() : frame.module() + "+" + frame.module_offset();
}

void WriteStack(const v1::Stack& stack, std::string_view indent, Piecewise* out) { StackWriter(stack, indent, out).Run(); }

}  // namespace stackd
