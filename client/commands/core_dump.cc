#include "daemon/pipeline/core_dump.h"

#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "daemon/base/clock.h"
#include "daemon/serve/requests/frame_filter.h"

namespace stackd {
namespace {

// A core may be large, and its program is not held up.
constexpr int64_t kDefaultTimeoutMs = 60'000;

}  // namespace

int RunCoreDump(const Options& options) {
  const int64_t timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : kDefaultTimeoutMs;
  const auto dump = DumpCore(options.core, options.executable, MonotonicNs() + timeout_ms * kNsPerMs);
  if (!dump) return Failed(dump.error());
  if (!PrintAs(FormatOf(options), *WithFrames(*dump, FramesOf(options)))) return kFailure;
  return CodeOfState(**dump);
}

}  // namespace stackd
