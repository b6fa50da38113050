#include "daemon/access/access_file.h"

#include <sys/stat.h>

#include "daemon/base/clock.h"
#include "daemon/log/log.h"

namespace stackd {
namespace {

constexpr int64_t kLookEveryNs = kNsPerSecond;

}  // namespace

Result<std::unique_ptr<AccessFile>> AccessFile::Open(const std::string& file) {
  std::unique_ptr<AccessFile> opened(new AccessFile(file));
  opened->looked_ns_ = MonotonicNs();
  if (file.empty()) {
    opened->rules_ = std::make_shared<const AccessRules>();
    return opened;
  }
  opened->stamp_ = StampOf(file);
  auto rules = ReadAccess(file);
  if (!rules) {
    const size_t others = rules.error().size() - 1;
    const std::string more =
        others == 0 ? "" : " (and " + std::to_string(others) + " more: stackd check-access tells them)";
    return Error(Code::kInvalidArgument, rules.error()[0] + more);
  }
  opened->rules_ = std::make_shared<const AccessRules>(std::move(*rules));
  return opened;
}

AccessFile::Stamp AccessFile::StampOf(const std::string& file) {
  struct stat status;
  if (stat(file.c_str(), &status) != 0) return {};
  return {.mtime_ns = status.st_mtim.tv_sec * kNsPerSecond + status.st_mtim.tv_nsec,
          .inode = status.st_ino,
          .size_bytes = status.st_size};
}

void AccessFile::OnChange(std::function<void(const AccessRules&)> on_change) {
  std::lock_guard lock(mutex_);
  on_change_ = std::move(on_change);
}

void AccessFile::LookAgain() {
  const Stamp stamp = StampOf(file_);
  if (stamp == stamp_) return;
  stamp_ = stamp;
  auto rules = ReadAccess(file_);
  if (!rules) {
    Log(LogLevel::kWarning, "the file of --access has faults, so the rules stay as they were", {{"err", rules.error()[0]}});
    return;
  }
  rules_ = std::make_shared<const AccessRules>(std::move(*rules));
  Log(LogLevel::kInfo, "the file of --access has changed", {{"entries", rules_->rules.size()}});
  if (on_change_) on_change_(*rules_);
}

std::shared_ptr<const AccessRules> AccessFile::Current() {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = MonotonicNs();
  if (!file_.empty() && now_ns - looked_ns_ >= kLookEveryNs) {
    looked_ns_ = now_ns;
    LookAgain();
  }
  return rules_;
}

}  // namespace stackd
