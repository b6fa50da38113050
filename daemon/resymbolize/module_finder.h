// The ELF files of a stored capture. The process is gone, and with it the files that it had opened for the daemon.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/result.h"
#include "daemon/modules/address_map.h"
#include "daemon/store/raw_capture.h"

namespace stackd {

// Thread-safe.
class ModuleFinder {
 public:
  // `dirs`: folders with files as DIR/.build-id/xx/yyyy and DIR/path/of/file.
  explicit ModuleFinder(std::vector<std::string> dirs) : dirs_(std::move(dirs)) {}

  // Remembers the files of a process for as long as something else holds them: the same program may be running again.
  void Learn(int32_t uid, const AddressMap& map);

  struct Found {
    // As that of the capture, with modules where there are any. A file that was not found is a stub. It has its build-id
    // and its addresses, so that a debug file can be found for it, and no unwind tables.
    std::shared_ptr<const AddressMap> map;
    std::string note;  // one sentence about the files that were not found; empty if all were
  };
  Found Find(const RawCapture& raw) const;

 private:
  std::shared_ptr<const Module> FindModule(int32_t uid, const std::string& path, const std::string& build_id) const;

  const std::vector<std::string> dirs_;
  mutable std::mutex mutex_;
  // By the uid of the process and the build-id. A build-id can be forged, but what has the same uid need not forge
  // anything.
  std::map<std::pair<int32_t, std::string>, std::weak_ptr<const Module>> known_;
};

}  // namespace stackd
