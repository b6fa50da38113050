// Names of code that a runtime has made, as it writes them to /tmp/perf-PID.map where it is told to: .NET, Mono, Erlang,
// Julia. Source of the format: tools/perf/Documentation/jit-interface.txt of Linux.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace stackd {

class PerfMap {
 public:
  static constexpr size_t kMaxSymbols = 1'000'000;
  // What a symbol takes beside its line: a node of the map, with what the heap adds.
  static constexpr size_t kSymbolBytes = 96;

  PerfMap() = default;
  // `all`: lines of "START SIZE NAME", hexadecimal numbers. What begins later takes the place of what lay there before, as
  // runtimes free code. Other lines, and those beyond `max_symbols`, are counted and left out. A name without code is none.
  explicit PerfMap(std::string all, size_t max_symbols = kMaxSymbols);
  PerfMap(PerfMap&&) = delete;

  // The name of the code at `avma`, valid UTF-8; empty if there is none.
  std::string NameOf(uint64_t avma) const;

  size_t symbol_count() const { return symbols_.size(); }
  size_t left_out() const { return left_out_; }

 private:
  struct Symbol {
    uint64_t end;
    std::string_view name;  // in text_
  };

  void Add(uint64_t start, uint64_t end, std::string_view name);

  const std::string text_;
  std::map<uint64_t, Symbol> symbols_;  // by start; none overlaps another
  size_t left_out_ = 0;
};

}  // namespace stackd
