// Turns places in scripts into lines: counts the line ends in the script's text in the process. The text is not kept.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "daemon/process/process_files.h"
#include "stackd/v8_trace.h"

namespace stackd {

class ScriptLines {
 public:
  // `position` counts characters of the script.
  void Want(const stackd_v8_script& script, uint32_t position);

  // Counts, each script once, until `deadline_ns`. Leaves out a script that was moved or freed since its agent saw it:
  // other data may lie in its place.
  void Read(const ProcessFiles& memory, int64_t deadline_ns);

  // Line, counted from 1; 0: not known.
  int32_t LineOf(const stackd_v8_script& script, uint32_t position) const;

  // Scripts whose text was not where it had been, or that did not fit into the limits.
  int missing_scripts() const { return missing_scripts_; }

 private:
  // By address of the script and of its text.
  using Key = std::pair<uint64_t, uint64_t>;
  struct Script {
    stackd_v8_script facts;
    std::set<uint32_t> wanted;
    std::map<uint32_t, int32_t> lines;  // by position
  };

  std::map<Key, Script> scripts_;
  int missing_scripts_ = 0;
};

}  // namespace stackd
