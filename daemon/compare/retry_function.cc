#include "daemon/compare/retry_function.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "daemon/analyze/names/function_name.h"

namespace stackd {
namespace {

// A call of one of them goes through wrappers of the language, which may be inlined.
constexpr int kInnermostFrames = 8;

// Without what stands before the last "::" or ".", and without leading underscores.
constexpr std::string_view kRetries[] = {
    // C
    "pthread_mutex_trylock", "pthread_rwlock_tryrdlock", "pthread_rwlock_trywrlock", "pthread_spin_lock",
    "pthread_spin_trylock", "pthread_yield", "sched_yield", "sem_trywait", "mtx_trylock", "thrd_yield",
    // C++
    "try_lock", "try_lock_shared", "try_lock_impl", "compare_exchange_weak", "compare_exchange_strong", "test_and_set",
    "yield", "gthread_mutex_trylock", "gthread_yield",
    // Rust
    "try_read", "try_write", "yield_now", "spin_loop", "compare_exchange",
    // Go
    "osyield", "procyield"};

}  // namespace

bool IsRetry(const std::string& function) {
  const std::string plain = PlainFunction(function);
  std::string_view name = plain;
  if (const size_t end = name.find_last_of(":."); end != name.npos) name.remove_prefix(end + 1);
  const auto skip_underscores = [&] { name.remove_prefix(std::min(name.find_first_not_of('_'), name.size())); };
  skip_underscores();
  if (name.starts_with("GI_")) name.remove_prefix(3);
  skip_underscores();
  return std::find(std::begin(kRetries), std::end(kRetries), name) != std::end(kRetries);
}

bool IsRetrying(const v1::Stack& stack) {
  const int frames = std::min(stack.frames_size(), kInnermostFrames);
  return std::any_of(stack.frames().begin(), stack.frames().begin() + frames,
                     [](const v1::Frame& frame) { return IsRetry(frame.function()); });
}

}  // namespace stackd
