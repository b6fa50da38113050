#include "daemon/managed/v8/script_lines.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

constexpr size_t kMaxScripts = 4096;
constexpr size_t kMaxPositions = 65536;  // of one script
// Limit for one dump. Bundles of tens of megabytes exist; most frames are near their beginning all the same.
constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
constexpr size_t kChunkBytes = size_t{64} << 10;

std::optional<uint64_t> ReadWord(const ProcessFiles& memory, uint64_t avma) {
  std::array<uint8_t, 8> bytes;
  if (memory.ReadSome(avma, bytes) != bytes.size()) return std::nullopt;
  uint64_t word;
  std::memcpy(&word, bytes.data(), sizeof(word));
  return word;
}

// Whether the script still has this text, in this place.
bool IsInPlace(const ProcessFiles& memory, const stackd_v8_script& script) {
  const auto offset = static_cast<uint64_t>(static_cast<int64_t>(script.source_bytes_at));
  return ReadWord(memory, script.script - 1 + offset) == script.source &&
         ReadWord(memory, script.source - 1) == script.source_map;
}

// Counts the ends of lines among characters that come in pieces. What ends a line is what ECMAScript says, with CR LF as
// one.
class LineCounter {
 public:
  // Calls line_at(position, newlines before it) for each of `wanted`, which rises.
  explicit LineCounter(const std::set<uint32_t>& wanted, std::map<uint32_t, int32_t>* lines)
      : next_(wanted.begin()), end_(wanted.end()), lines_(lines) {}

  bool done() const { return next_ == end_; }

  void Add(uint32_t unit) {
    // A CR counts once it is known that no LF follows; what stands behind it is on the next line all the same.
    if (after_return_ && unit != '\n') ++ends_;
    for (; next_ != end_ && *next_ == position_; ++next_) (*lines_)[position_] = ends_;
    after_return_ = unit == '\r';
    if (unit == '\n' || unit == 0x2028 || unit == 0x2029) ++ends_;
    ++position_;
  }

  // Handles positions at the end of the text.
  void Finish() {
    if (after_return_) ++ends_;
    for (; next_ != end_ && *next_ == position_; ++next_) (*lines_)[position_] = ends_;
  }

 private:
  std::set<uint32_t>::const_iterator next_;
  std::set<uint32_t>::const_iterator end_;
  std::map<uint32_t, int32_t>* lines_;
  uint32_t position_ = 0;
  int32_t ends_ = 0;
  bool after_return_ = false;
};

bool CountLines(const ProcessFiles& memory, const stackd_v8_script& script, int64_t deadline_ns, uint64_t* text_bytes_left,
                LineCounter* counter) {
  const size_t unit_bytes = script.two_bytes != 0 ? 2 : 1;
  std::vector<uint8_t> chunk(kChunkBytes);
  uint64_t left_bytes = uint64_t{script.chars_count} * unit_bytes;
  for (uint64_t avma = script.chars; left_bytes > 0 && !counter->done();) {
    const size_t part = std::min<uint64_t>(left_bytes, chunk.size());
    if (part > *text_bytes_left || MonotonicNs() > deadline_ns) return false;
    *text_bytes_left -= part;
    if (memory.ReadSome(avma, std::span(chunk).first(part)) != part) return false;
    for (size_t i = 0; i < part; i += unit_bytes) {
      counter->Add(unit_bytes == 1 ? chunk[i] : uint32_t{chunk[i]} | uint32_t{chunk[i + 1]} << 8);
    }
    avma += part;
    left_bytes -= part;
  }
  if (left_bytes == 0) counter->Finish();
  return true;
}

}  // namespace

void ScriptLines::Want(const stackd_v8_script& script, uint32_t position) {
  const Key key{script.script, script.source};
  auto it = scripts_.find(key);
  if (it == scripts_.end()) {
    if (scripts_.size() >= kMaxScripts) return;
    it = scripts_.emplace(key, Script{.facts = script, .wanted = {}, .lines = {}}).first;
  }
  if (it->second.wanted.size() < kMaxPositions) it->second.wanted.insert(position);
}

void ScriptLines::Read(const ProcessFiles& memory, int64_t deadline_ns) {
  uint64_t text_bytes_left = kMaxTextBytes;
  for (auto& [key, script] : scripts_) {
    const stackd_v8_script& facts = script.facts;
    LineCounter counter(script.wanted, &script.lines);
    // Looked at before and after: what was in place both times was so in between.
    if (facts.chars == 0 || !IsInPlace(memory, facts) ||
        !CountLines(memory, facts, deadline_ns, &text_bytes_left, &counter) || !IsInPlace(memory, facts)) {
      script.lines.clear();
      ++missing_scripts_;
    }
  }
}

int32_t ScriptLines::LineOf(const stackd_v8_script& script, uint32_t position) const {
  const auto it = scripts_.find(Key{script.script, script.source});
  if (it == scripts_.end()) return 0;
  const auto line = it->second.lines.find(position);
  if (line == it->second.lines.end()) return 0;
  const int64_t number = int64_t{line->second} + 1 + script.line_offset;
  return number > 0 && number <= INT32_MAX ? static_cast<int32_t>(number) : 0;
}

}  // namespace stackd
