// Where separate debug files lie: DIR/.build-id/xx/yyyy.debug, DIR/path/of/file.debug, DIR/.dwz/….
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/symbolize/elf_file.h"

namespace stackd {

class DebugFiles {
 public:
  // Opens an ELF file below one of the folders, which has this number in `dirs`. Invalid if it is not there.
  using OpenBelow = std::function<Fd(size_t folder, const std::string& relative_path)>;

  DebugFiles(const std::vector<std::string>& dirs, OpenBelow open_below);

  // The debug file that belongs to `module`: with its build-id, or, if one of both has none, with the checksum that its
  // .gnu_debuglink states. nullptr if there is none. `module_path` is a path in another mount namespace: it is only looked
  // up below the folders, never opened itself.
  std::unique_ptr<ElfFile> FindFor(const ElfFile& module, std::string_view module_path) const;

  // The file with parts common to several debug files, made by dwz. nullptr if `debug_file` needs none or it is not there.
  std::unique_ptr<ElfFile> FindDwzOf(const ElfFile& debug_file) const;

  // For messages: "/usr/lib/debug, /debug".
  const std::string& description() const { return description_; }

 private:
  std::unique_ptr<ElfFile> FindByBuildId(const std::string& build_id) const;
  std::unique_ptr<ElfFile> FindByDebugLink(const ElfFile& module, std::string_view module_path) const;

  const size_t folders_;
  const OpenBelow open_below_;
  std::string description_;
};

}  // namespace stackd
