#include "daemon/access/caller_limits.h"

#include <utility>

#include "daemon/base/clock.h"

namespace stackd {
namespace {

// Callers that do nothing are forgotten from here on: a name is as large as a certificate may make it.
constexpr size_t kRememberedCallers = 256;
constexpr int64_t kSoonNs = kNsPerSecond;
constexpr double kBurstSeconds = 2;
constexpr double kCaptureBurst = 40;

std::unexpected<Refusal> Refused(std::string message, std::string reason, int64_t retry_after_ns) {
  return std::unexpected(Refusal{{Code::kResourceExhausted, std::move(message), std::move(reason)}, retry_after_ns});
}

}  // namespace

CallerLimits::Caller::Caller(const CallRates& call_rates)
    : rates(call_rates),
      calls(static_cast<double>(rates.calls_per_second), static_cast<double>(rates.calls_per_second) * kBurstSeconds),
      captures(static_cast<double>(rates.captures_per_minute) / 60,
               std::min(kCaptureBurst, static_cast<double>(rates.captures_per_minute))) {}

void CallerLimits::ForgetIdle(int64_t now_ns) {
  for (auto entry = callers_.begin(); entry != callers_.end();) {
    Caller& caller = entry->second;
    const bool is_idle = caller.running == 0 && caller.calls.IsFull(now_ns) && caller.captures.IsFull(now_ns);
    entry = is_idle ? callers_.erase(entry) : std::next(entry);
  }
}

CallerLimits::Caller& CallerLimits::Find(const std::string& name, const CallRates& rates, int64_t now_ns) {
  auto found = callers_.find(name);
  if (found == callers_.end()) {
    if (callers_.size() >= kRememberedCallers) ForgetIdle(now_ns);
    found = callers_.emplace(name, Caller(rates)).first;
  }
  Caller& caller = found->second;
  if (caller.rates != rates) {
    const Caller fresh(rates);
    caller.rates = rates;
    caller.calls = fresh.calls;
    caller.captures = fresh.captures;
  }
  return caller;
}

std::expected<int, Refusal> CallerLimits::BeginCall(const Grant& grant, bool is_stream, const CallRates& rates,
                                                    int64_t now_ns) {
  std::lock_guard lock(mutex_);
  Caller& caller = Find(grant.caller, rates, now_ns);
  if (grant.role != Role::kAdmin) {
    const int64_t wait_ns = caller.calls.TakeOrWaitNs(now_ns);
    if (wait_ns > 0) {
      return Refused(grant.caller + " calls more often than " + std::to_string(rates.calls_per_second) + " times a second",
                     "CALL_RATE_LIMITED", wait_ns);
    }
  }
  if (caller.running >= kMaxCalls) {
    return Refused(grant.caller + " has " + std::to_string(kMaxCalls) + " calls under way already", "TOO_MANY_CALLS",
                   kSoonNs);
  }
  if (is_stream && caller.streams >= kMaxStreams) {
    return Refused(grant.caller + " has " + std::to_string(kMaxStreams) + " watches and exports under way already",
                   "TOO_MANY_CALLS", kSoonNs);
  }
  ++caller.running;
  caller.streams += is_stream;
  return caller.running;
}

void CallerLimits::EndCall(const std::string& name, bool is_stream) {
  std::lock_guard lock(mutex_);
  Caller& caller = callers_.at(name);
  --caller.running;
  caller.streams -= is_stream;
}

std::expected<void, Refusal> CallerLimits::Capture(const Grant& grant, const CallRates& rates, int64_t now_ns) {
  if (grant.role == Role::kAdmin) return {};
  std::lock_guard lock(mutex_);
  const int64_t wait_ns = Find(grant.caller, rates, now_ns).captures.TakeOrWaitNs(now_ns);
  if (wait_ns == 0) return {};
  return Refused(grant.caller + " asks for more than " + std::to_string(rates.captures_per_minute) +
                     " dumps a minute, made or named anew; each costs time of others",
                 "CAPTURE_RATE_LIMITED", wait_ns);
}

}  // namespace stackd
