#include "daemon/collect/crash_claim.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/collect/shared_word.h"

namespace stackd {
namespace {

// The size of a traceback of a thousand goroutines, about.
constexpr size_t kMaxReportBytes = 1 << 20;

}  // namespace

bool RuntimeReportFile::Keep(ReceivedMessage* message) {
  const auto report = message->As<stackd_report_file>();
  // Only a file in memory has seals: no other can make its reader wait.
  if (!report || message->fds.empty() || fcntl(message->fds.front().get(), F_GET_SEALS) < 0) return false;
  std::lock_guard lock(mutex_);
  file_ = std::move(message->fds.front());
  const bool is_known = report->language <= static_cast<uint32_t>(Language::kLast);
  report_.language = is_known ? static_cast<Language>(report->language) : Language::kUnknown;
  report_.title = FieldText(report->title);
  return true;
}

std::optional<RuntimeReport> RuntimeReportFile::Take() {
  std::lock_guard lock(mutex_);
  if (!file_.valid()) return std::nullopt;
  RuntimeReport report = report_;
  report.text.resize(kMaxReportBytes);
  const ssize_t got = pread(file_.get(), report.text.data(), report.text.size(), 0);
  file_.Reset();
  // A file that has its size from the start holds zeros where nothing was written.
  report.text.resize(strnlen(report.text.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))));
  if (report.text.empty()) return std::nullopt;
  return report;
}

void CrashClaim::Keep(CrashRecord record) {
  std::lock_guard lock(mutex_);
  if (has_crashed_.load()) {
    counters_->crashes_repeated++;
    return;
  }
  counters_->crashes_taken++;
  record_ = std::move(record);
  has_crashed_.store(true);
  SetSharedWord(&ring_->header()->crash_phase, STACKD_CRASH_TAKEN);
}

void CrashClaim::KeepReport(RuntimeReportFile* file) {
  std::lock_guard lock(mutex_);
  if (has_crashed_.load()) return;
  report_ = file->Take();
  if (!report_) return;
  counters_->crashes_taken++;
  has_crashed_.store(true);
}

bool CrashClaim::Claim() {
  std::lock_guard lock(mutex_);
  return has_crashed_.load() && !std::exchange(is_claimed_, true);
}

std::optional<CrashRecord> CrashClaim::TakeRecord() {
  std::lock_guard lock(mutex_);
  return std::exchange(record_, std::nullopt);
}

std::optional<RuntimeReport> CrashClaim::TakeReport() {
  std::lock_guard lock(mutex_);
  return std::exchange(report_, std::nullopt);
}

void CrashClaim::Release() { SetSharedWord(&ring_->header()->crash_phase, STACKD_CRASH_STORED); }

}  // namespace stackd
