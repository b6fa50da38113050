#include "daemon/serve/health/probes.h"

#include "daemon/base/clock.h"
#include "daemon/base/loop_watch.h"

namespace stackd {
namespace {

constexpr int64_t kLookEveryNs = 100 * kNsPerMs;
constexpr unsigned kOk = 200, kUnavailable = 503;
constexpr char kText[] = "text/plain; charset=utf-8";

}  // namespace

HttpAnswer Probes::Live() const {
  const std::string stuck = DaemonLoops().Stuck(/*that_hold_up_all=*/true);
  return stuck.empty() ? HttpAnswer{kOk, "ok\n"} : HttpAnswer{kUnavailable, stuck + "\n"};
}

HttpAnswer Probes::Ready() const {
  return draining_ ? HttpAnswer{kUnavailable, "stackd is shutting down\n"} : HttpAnswer{kOk, "ok\n"};
}

HttpAnswer Probes::Process(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (const int64_t now_ns = MonotonicNs(); process_health_ != nullptr && now_ns - looked_ns_ >= kLookEveryNs) {
    health_ = process_health_->OfAll();
    looked_ns_ = MonotonicNs();
  }
  const auto found = health_.find(name);
  // A process that is not connected is not known to be ill. Its daemon may have just been started, or its agent be switched
  // off.
  if (found == health_.end()) return {kOk, "unknown: no process of that name is connected\n"};
  if (found->second == Health::kIll) return {kUnavailable, "it is in a deadlock, or misses a heartbeat\n"};
  return {kOk, "ok\n"};
}

void Probes::AddTo(HttpPages* pages) {
  for (const char* path : {"/livez", "/healthz"}) {
    (*pages)[path] = {kText, [this](const std::string&) { return Live(); }};
  }
  (*pages)["/readyz"] = {kText, [this](const std::string&) { return Ready(); }};
  (*pages)["/process/"] = {kText, [this](const std::string& name) { return Process(name); }};
}

}  // namespace stackd
