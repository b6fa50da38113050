// From places in scripts to lines, by counting the ends of lines in the script's text where the process has it. The text is
// looked at and not kept.
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

  // Counts, each script once, until `deadline_ns`. A script that has been moved or freed since its agent saw it is left
  // out: its place in memory may be another's.
  void Read(const ProcessFiles& memory, int64_t deadline_ns);

  // From 1; 0: not known.
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
