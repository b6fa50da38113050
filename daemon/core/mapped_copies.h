// The files that the process of a core had mapped, as far as they are here and are still the same.
//
// A path leads to another file after an upgrade, and on another machine. So a file is believed only if its first page
// equals what the core has of it, and its build-id stands in the core. Paths come from the core: only regular files are
// opened.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/core/core_file.h"
#include "daemon/core/core_layout.h"

namespace stackd {

class MappedCopies {
 public:
  // Files with code are opened, at most so many: each takes two fds, of the 1,024 that a program has.
  static constexpr size_t kMaxFiles = 400;

  // `executable`: where the program is, if not where the core says; empty: there. Fails with kInvalidArgument if that file
  // is another program. Both must outlive it.
  static Result<MappedCopies> Open(const CoreFile& core, const CoreLayout& layout, const std::string& executable);

  // By CorePart::file; -1: there is none.
  int fd(int32_t file) const { return copies_[static_cast<size_t>(file)].file.get(); }
  // By the path that the process had; invalid: there is none.
  Fd Duplicate(const std::string& path) const;
  // Why there is none, and what to do, one sentence; empty: there is one, or none was needed.
  const std::string& problem(int32_t file) const { return copies_[static_cast<size_t>(file)].problem; }
  // What must be known of the files that there are, one sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Copy {
    Fd file;
    std::string problem;
    bool is_missing = false;
  };

  MappedCopies(const CoreFile& core, const CoreLayout& layout)
      : core_(&core), layout_(&layout), copies_(layout.files.size()) {}

  // Fills in the copy, from the file at `path`. `way_out`: what to do if it is not there or is another.
  void Take(const CoreLayoutFile& mapped, const std::string& path, const std::string& way_out, Copy* copy);

  const CoreFile* core_;
  const CoreLayout* layout_;
  std::vector<Copy> copies_;
  std::vector<std::string> notes_;
};

}  // namespace stackd
