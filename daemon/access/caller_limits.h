// What one caller may use of the daemon, so that there is something left for the others.
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <mutex>
#include <string>

#include "daemon/access/access_rules.h"
#include "daemon/base/result.h"
#include "daemon/base/token_bucket.h"

namespace stackd {

// A refusal, and when to come again.
struct Refusal {
  Status status;
  int64_t retry_after_ns = 0;
};

// Thread-safe. Callers are known by their name in the audit.
class CallerLimits {
 public:
  static constexpr int kMaxCalls = 128;   // at a time; 100 that wait for one capture are no flood
  static constexpr int kMaxStreams = 12;  // of those: watches and exports; the others must be able to export, too

  // Admits a call, and returns how many of its caller are then under way. EndCall must follow an admitted call. An admin
  // has no rate: that role may delete everything as it is.
  std::expected<int, Refusal> BeginCall(const Grant& grant, bool is_stream, const CallRates& rates, int64_t now_ns);
  void EndCall(const std::string& caller, bool is_stream);

  // Admits a capture. A call that joins another call's capture does not ask.
  std::expected<void, Refusal> Capture(const Grant& grant, const CallRates& rates, int64_t now_ns);

 private:
  struct Caller {
    explicit Caller(const CallRates& rates);
    CallRates rates;
    TokenBucket calls;
    TokenBucket captures;
    int running = 0;
    int streams = 0;
  };

  Caller& Find(const std::string& name, const CallRates& rates, int64_t now_ns);
  void ForgetIdle(int64_t now_ns);

  std::mutex mutex_;
  std::map<std::string, Caller> callers_;
};

}  // namespace stackd
