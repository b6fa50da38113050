// Holds the rules of the file of --access, and reads them again when the file changes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/access/access_rules.h"
#include "daemon/base/result.h"

namespace stackd {

// Thread-safe.
class AccessFile {
 public:
  // "": the built-in rules. Fails with the file's first fault.
  static Result<std::unique_ptr<AccessFile>> Open(const std::string& file);

  // Looks at the file at most once in a second. To be called each second, also without a call of the API: a user whom the
  // file now names cannot connect before OnChange. A file that has become faulty changes nothing, and is logged once.
  std::shared_ptr<const AccessRules> Current();

  // Called when the rules have changed, with the lock held.
  void OnChange(std::function<void(const AccessRules&)> on_change);

 private:
  struct Stamp {
    int64_t mtime_ns = 0;
    uint64_t inode = 0;
    int64_t size_bytes = 0;
    bool operator==(const Stamp&) const = default;
  };

  explicit AccessFile(std::string file) : file_(std::move(file)) {}
  static Stamp StampOf(const std::string& file);
  void LookAgain();

  const std::string file_;
  std::mutex mutex_;
  std::shared_ptr<const AccessRules> rules_;
  Stamp stamp_;
  int64_t looked_ns_ = 0;
  std::function<void(const AccessRules&)> on_change_;
};

}  // namespace stackd
