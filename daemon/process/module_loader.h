// Turns the maps of a process into an AddressMap whose mappings have their modules.
//
// The daemon may not see the process's files (another mount namespace), so the process opens each for it. What it sends is
// compared with its memory, since the path may lead to another file by now. What has no file (the vDSO, a library deleted
// since) is copied from memory. Where that may not be read the process is asked (STACKD_SHARE).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/base/byte_budget.h"
#include "daemon/base/fd.h"
#include "daemon/modules/address_map.h"
#include "daemon/modules/module_cache.h"
#include "daemon/process/process_files.h"

namespace stackd {

// Loader for one process. One thread at a time.
class ModuleLoader {
 public:
  // Asks the process to open files. Returns a result for each path: an invalid fd if there is no file, nullopt if the
  // process has not answered by the deadline.
  using OpenFiles =
      std::function<std::vector<std::optional<Fd>>(const std::vector<std::string>& paths, int64_t deadline_ns)>;

  // Asks the process for bytes of a mapping: where its memory may not be read.
  using ReadImage = std::function<Result<std::vector<uint8_t>>(uint64_t avma, uint64_t size_bytes, int64_t deadline_ns)>;

  // All must outlive the loader, and `images` the modules too: the memory for what is copied; nullptr: there is no limit.
  // `executable` as the process names it.
  ModuleLoader(const ProcessFiles* files, ModuleCache* cache, std::string executable, OpenFiles open_files,
               ReadImage read_image, ByteBudget* images = nullptr);

  // Reads the maps anew. Files that have not come by the deadline are copied from memory if possible (with fewer names),
  // and asked for again next time. `notes` gets sentences for the operator. Fails if the maps cannot be read.
  Result<std::shared_ptr<const AddressMap>> Load(int64_t deadline_ns, std::vector<std::string>* notes);

  // Whether the next Load may get files that the last one missed: no answer came in time, or the process ended.
  bool awaits_files() const { return !awaited_.empty(); }

 private:
  // What the kernel shows in maps of one file.
  using FileKey = std::tuple<uint64_t, uint64_t, std::string>;  // device, inode, path

  // The mappings of one file, by index.
  struct MappedFile {
    FileKey key;
    std::vector<size_t> mappings;
  };

  using Modules = std::map<FileKey, std::shared_ptr<const Module>>;

  std::vector<MappedFile> FilesWithCode(const std::vector<Mapping>& mappings) const;
  // Gives the modules that are known, that another process has passed, or that this one passes when it is asked.
  Modules LoadFiles(const std::vector<Mapping>& mappings, const std::vector<MappedFile>& files);
  // Adds images of the other files from memory. Gives the paths of those that have none.
  std::vector<std::string> CopyImages(const std::vector<Mapping>& mappings, const std::vector<MappedFile>& files,
                                      Modules* loaded);
  std::string PathToOpen(const std::string& mapped_path) const;
  Result<std::vector<uint8_t>> ReadMapped(uint64_t avma, uint64_t size_bytes) const;
  bool SameAsMemory(int fd, const Mapping& mapping) const;
  // The module of the same file that another process has passed, so that this one need not be asked.
  std::shared_ptr<const Module> OfAnotherProcess(const MappedFile& file, const Mapping& first) const;
  std::shared_ptr<const Module> FromFile(Fd fd, const Mapping& first) const;
  std::shared_ptr<const Module> FromMemory(const std::vector<Mapping>& mappings, const MappedFile& file,
                                           uint64_t* budget_bytes) const;
  bool CopyMemory(const Mapping& mapping, int to_fd, uint64_t to_offset) const;

  const ProcessFiles* files_;
  ModuleCache* cache_;
  std::string executable_;
  OpenFiles open_files_;
  ReadImage read_image_;
  ByteBudget* images_budget_;
  int64_t deadline_ns_ = 0;  // of the Load that runs
  Modules known_;
  std::set<FileKey> images_;   // those of known_ that were copied from memory
  std::set<FileKey> awaited_;  // not answered for: none of known_
};

}  // namespace stackd
