#include "daemon/group/crash_fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/analyze/function_name.h"
#include "daemon/analyze/runtime_frame.h"

namespace stackd {
namespace {

// Raised with any change of what is used or hashed: fingerprints of different rules do not compare.
constexpr std::string_view kRule = "crash-1";

constexpr int kMaxUsedFrames = 8;
// More are not looked at: noise is never deeper.
constexpr int kMaxFrames = 64;

// Functions that a crash goes through after what went wrong, by the name of the rule. A name that ends with '*' stands for
// all that begin so.
struct NoiseRule {
  std::string_view name;
  std::string_view functions[16];  // those behind the last are empty
};

constexpr NoiseRule kNoise[] = {
    {"raise", {"raise", "gsignal", "pthread_kill", "__pthread_kill*", "tgkill", "tkill", "kill"}},
    {"abort",
     {"abort", "std::process::abort", "core::intrinsics::abort", "std::sys::abort_internal",
      "std::sys::pal::unix::abort_internal", "std::sys::unix::abort_internal"}},
    {"assertion", {"__assert_fail*", "__assert_perror_fail", "__assert", "std::__glibcxx_assert_fail"}},
    {"libc-message", {"__libc_message*", "__libc_fatal"}},
    {"fortify", {"__fortify_fail*", "__stack_chk_fail*", "__chk_fail"}},
    {"allocator",
     {"malloc_printerr", "_int_free*", "_int_malloc", "_int_realloc", "_int_memalign", "munmap_chunk", "mremap_chunk",
      "malloc_consolidate", "unlink_chunk*", "sysmalloc*", "systrim*", "tcache_*", "__malloc_assert", "__libc_malloc_*"}},
    {"terminate",
     {"std::terminate", "std::unexpected", "__cxxabiv1::__terminate", "__cxxabiv1::__unexpected",
      "__gnu_cxx::__verbose_terminate_handler", "__cxa_throw", "__cxa_rethrow", "__cxa_call_terminate",
      "__cxa_call_unexpected", "__cxa_pure_virtual", "__cxa_deleted_virtual", "std::__throw_*", "std::rethrow_exception"}},
    {"unwinder", {"_Unwind_*", "__gxx_personality_v0"}},
    {"rust-panic",
     {"rust_panic*", "__rust_start_panic", "rust_begin_unwind", "__rustc::*", "core::panicking::*", "std::panicking::*",
      "panic_abort::*", "std::sys::backtrace::__rust_end_short_backtrace",
      "std::sys_common::backtrace::__rust_end_short_backtrace", "core::option::unwrap_failed",
      "core::option::expect_failed", "core::result::unwrap_failed", "core::slice::index::slice_*",
      "core::str::slice_error_fail*", "alloc::alloc::handle_alloc_error*", "alloc::raw_vec::capacity_overflow"}},
    {"signal-trampoline", {"<signal handler called>", "__restore_rt", "__kernel_rt_sigreturn"}},
};

// What calls the first function of a program or thread: it and all behind it differ between C libraries and compilers.
constexpr NoiseRule kRoot = {
    "start-of-thread",
    {"_start", "__libc_start_main*", "__libc_start_call_main", "start_thread", "clone", "clone3", "__clone*",
     "std::thread::_State_impl::_M_run", "std::rt::lang_start*", "std::sys::backtrace::__rust_begin_short_backtrace",
     "std::sys_common::backtrace::__rust_begin_short_backtrace"}};

// What only hands a call on, and is there or not as the optimizer likes.
constexpr NoiseRule kPlumbing = {"call-plumbing",
                                 {"std::__invoke*", "std::_Function_handler*", "std::function::operator()",
                                  "std::thread::_Invoker*", "core::ops::function::Fn*", "core::ops::function::impls::*"}};

bool Matches(std::string_view function, std::string_view pattern) {
  if (!pattern.ends_with('*')) return function == pattern;
  pattern.remove_suffix(1);
  return function.starts_with(pattern);
}

bool Matches(std::string_view function, const NoiseRule& rule) {
  return std::ranges::any_of(rule.functions,
                             [&](std::string_view pattern) { return !pattern.empty() && Matches(function, pattern); });
}

// What carries a runtime's functions differs from version to version of the runtime.
constexpr std::string_view kRuntimeItself = "runtime-itself";

// What a package does to have the stack of an exception dumped that is over: native code around functions of the language.
constexpr std::string_view kReport = "report-of-the-exception";

std::string PlainName(const v1::Frame& frame) {
  return IsOfRuntime(frame) ? frame.function() : PlainLibcFunction(PlainFunction(frame.function()));
}

// The file of the runtime whose functions are in the stack; empty if there are none, or if it is in no file of its own.
std::string_view RuntimeModuleOf(const v1::Stack& stack) {
  v1::Language language = v1::LANGUAGE_UNSPECIFIED;
  for (const v1::Frame& frame : stack.frames()) {
    if (IsOfRuntime(frame)) language = frame.language();
    // A Go program is in one file with its runtime.
    if (frame.replaced() && language != v1::GO && !frame.module().starts_with('[')) return frame.module();
  }
  return {};
}

// The C++ runtime's own functions often have no names.
bool IsUnnamedRuntime(const v1::Frame& frame) {
  return frame.function().empty() &&
         (frame.module().starts_with("libstdc++.so") || frame.module().starts_with("libgcc_s.so"));
}

// Empty for a frame that may be to blame. `after_noise`: the frames before it are noise, and there are some.
std::string_view NoiseRuleOf(const v1::Frame& frame, bool after_noise) {
  if (after_noise && IsUnnamedRuntime(frame)) return "c++-runtime";
  if (IsOfRuntime(frame)) return "";
  if (frame.function() == "<signal handler called>") return "signal-trampoline";
  if (frame.function().empty() && frame.module() == "[anon]") return "no-code";
  const std::string plain = PlainName(frame);
  for (const NoiseRule& rule : kNoise) {
    if (Matches(plain, rule)) return rule.name;
  }
  return "";
}

// What a used frame is known by. Code outside all files is somewhere else in each process.
std::string Identity(const v1::Frame& frame) {
  if (!frame.function().empty()) return PlainName(frame);
  return frame.module_offset().empty() ? frame.module() : frame.module() + "+" + frame.module_offset();
}

// The walk from the innermost frame outwards.
class FingerprintWalk {
 public:
  FingerprintWalk(const v1::Stack& stack, v1::Crash* crash)
      : frames_(stack.frames()),
        count_(std::min(stack.frames_size(), kMaxFrames)),
        runtime_module_(RuntimeModuleOf(stack)),
        crash_(crash) {}

  void Run() {
    int i = crash_->cause() == v1::Crash::STACK_OVERFLOW ? RunRecursion() : 0;
    const bool is_recursion = i > 0;
    if (crash_->cause() == v1::Crash::UNCAUGHT_EXCEPTION) i = RunReport();
    const bool is_report = i > 0 && !is_recursion;
    if (i == 0) i = RunNoise();
    const int first_to_blame = is_recursion ? -1 : i;
    for (; i < count_; ++i) {
      if (is_report && static_cast<int>(used_.size()) >= kMaxUsedFrames) return;
      if (IsRuntimeItself(i, first_to_blame)) {
        Skip(i, kRuntimeItself);
        continue;
      }
      if (IsOfRuntime(frames_[i])) {
        UseIfRoom(i);
        continue;
      }
      if (is_report) {
        Skip(i, kReport);
        continue;
      }
      const std::string plain = PlainName(frames_[i]);
      at_root_ = at_root_ || Matches(plain, kRoot);
      if (at_root_) {
        Skip(i, kRoot.name);
      } else if (Matches(plain, kPlumbing)) {
        Skip(i, kPlumbing.name);
      } else {
        UseIfRoom(i);
      }
    }
  }

  // Of used frames, innermost first.
  const std::vector<std::string>& used() const { return used_; }

 private:
  // A crash of the runtime's own is known by the innermost of its functions, and by what it ran.
  bool IsRuntimeItself(int i, int first_to_blame) const {
    if (frames_[i].replaced()) return true;
    const bool in_its_file = !runtime_module_.empty() && frames_[i].module() == runtime_module_;
    return in_its_file && i > first_to_blame && !IsOfRuntime(frames_[i]);
  }

  // Returns the first frame that may be to blame.
  int RunNoise() {
    int i = 0;
    for (; i < count_; ++i) {
      // Where a wild jump landed is chance.
      const bool is_target = i == 0 && crash_->cause() == v1::Crash::BAD_JUMP && frames_[i].function().empty();
      const std::string_view rule = is_target ? "no-code" : NoiseRuleOf(frames_[i], i > 0);
      if (rule.empty()) break;
      Skip(i, rule);
    }
    return i;
  }

  // A language that has unwound the stack when it tells that nobody caught the exception has it built up again by the
  // package (_exceptions.py): what did so is not to blame. Returns the frame that names the exception; 0 if there is none.
  int RunReport() {
    const auto named = [](const v1::Frame& frame) {
      return IsOfRuntime(frame) && frame.function().starts_with("unhandled ");
    };
    const int end = static_cast<int>(std::find_if(frames_.begin(), frames_.begin() + count_, named) - frames_.begin());
    if (end == count_) return 0;
    for (int i = 0; i < end; ++i) Skip(i, kReport);
    // However many native functions lie before and between: the same functions are used.
    count_ = frames_.size();
    return end;
  }

  // A stack that runs over does so in whatever the recursion happens to call there, and at any point of its turn. Uses one
  // turn, from the same function on each time, and returns the first frame behind the recursion; 0 if there is none.
  int RunRecursion() {
    int begin = 0;
    while (begin < count_ && frames_[begin].repeat_count() == 0) ++begin;
    if (begin == count_) return 0;
    const int end = std::min(begin + std::max(frames_[begin].repeat_length(), 1), count_);
    for (int i = 0; i < begin; ++i) Skip(i, "above-the-recursion");
    std::vector<std::string> turn;
    std::vector<int> frames_of_turn;
    for (int i = begin; i < end; ++i) {
      if (IsRuntimeItself(i, begin)) {
        Skip(i, kRuntimeItself);
        continue;
      }
      turn.push_back(Identity(frames_[i]));
      frames_of_turn.push_back(i);
    }
    const auto least = LeastRotation(turn);
    for (size_t i = 0; i < turn.size(); ++i) UseIfRoom(frames_of_turn[(least + i) % turn.size()]);
    int behind = end;
    for (; behind < count_; ++behind) {
      const bool is_runtime = IsRuntimeItself(behind, begin);
      if (!is_runtime && std::ranges::find(turn, Identity(frames_[behind])) == turn.end()) break;
      Skip(behind, is_runtime ? kRuntimeItself : "rest-of-the-recursion");
    }
    return behind;
  }

  static size_t LeastRotation(const std::vector<std::string>& turn) {
    size_t least = 0;
    for (size_t candidate = 1; candidate < turn.size(); ++candidate) {
      for (size_t i = 0; i < turn.size(); ++i) {
        const auto order = turn[(candidate + i) % turn.size()] <=> turn[(least + i) % turn.size()];
        if (order < 0) least = candidate;
        if (order != 0) break;
      }
    }
    return least;
  }

  void UseIfRoom(int i) {
    if (static_cast<int>(used_.size()) >= kMaxUsedFrames) return Skip(i, "beyond-the-first-8");
    used_.push_back(Identity(frames_[i]));
    v1::FingerprintFrame* frame = Add(i);
    frame->set_function(used_.back());
    frame->set_used(true);
  }

  void Skip(int i, std::string_view rule) { Add(i)->set_rule(std::string(rule)); }

  v1::FingerprintFrame* Add(int i) {
    v1::FingerprintFrame* frame = crash_->add_fingerprint_frames();
    frame->set_function(frames_[i].function());
    frame->set_module(frames_[i].module());
    return frame;
  }

  const google::protobuf::RepeatedPtrField<v1::Frame>& frames_;
  int count_;
  const std::string_view runtime_module_;
  v1::Crash* const crash_;
  std::vector<std::string> used_;
  bool at_root_ = false;
};

// Length and text, so that no name can imitate the border between two.
void AddText(std::string_view text, std::string* input) {
  const uint64_t size_bytes = text.size();
  input->append(reinterpret_cast<const char*>(&size_bytes), sizeof(size_bytes));
  input->append(text);
}

}  // namespace

void AddCrashFingerprint(const v1::Stack* stack, const std::string& executable, v1::Crash* crash) {
  std::string input(kRule);
  crash->set_fingerprint_rule(std::string(kRule));
  bool any_used = false;
  if (stack != nullptr) {
    FingerprintWalk walk(*stack, crash);
    walk.Run();
    for (const std::string& frame : walk.used()) AddText(frame, &input);
    any_used = !walk.used().empty();
  }
  if (!any_used) {
    AddText(executable, &input);
    AddText(crash->signal_name(), &input);
    AddText(crash->code_name(), &input);
  }
  const XXH128_hash_t hash = XXH3_128bits(input.data(), input.size());
  char digits[33];
  snprintf(digits, sizeof(digits), "%016lx%016lx", hash.high64, hash.low64);
  crash->set_fingerprint(digits);
}

}  // namespace stackd
