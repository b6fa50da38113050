#include "daemon/fingerprint/fingerprint_walk.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "daemon/analyze/names/function_name.h"
#include "daemon/analyze/names/runtime_frame.h"

namespace stackd {
namespace {

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
      "malloc_consolidate", "unlink_chunk*", "sysmalloc*", "systrim*", "tcache_*", "__malloc_assert", "__libc_malloc_*",
      "arena_for_chunk", "heap_for_ptr"}},
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

// A part of a function that the compiler made a function of its own (f.part.0), and put back into the first.
constexpr std::string_view kPart = "part-of-its-caller";

// What a package does to have the stack of an exception dumped that is over: native code around functions of the language.
constexpr std::string_view kReport = "report-of-the-exception";

std::string PlainName(const v1::Frame& frame) {
  return IsOfRuntime(frame) ? frame.function() : PlainLibcFunction(PlainFunction(frame.function()));
}

// The file of the runtime whose functions are in the stack. Empty if it has none there, or is in no file of its own.
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

// Functions that a wait goes through, where the C library is part of the program.
constexpr NoiseRule kWait = {"wait",
                             {"pthread_*", "__pthread_*", "___pthread_*", "__lll_*", "__futex_*", "futex_*", "syscall",
                              "__syscall*", "__clock_nanosleep*", "__gthread_*", "std::mutex::*", "std::recursive_mutex::*",
                              "std::unique_lock*", "std::lock_guard*", "std::scoped_lock*", "std::condition_variable*"}};

bool IsOfAWait(const v1::Frame& frame) {
  if (IsOfRuntime(frame)) return false;
  const std::string_view module = frame.module();
  for (std::string_view library : {"libc.so", "libc-2.", "libpthread", "ld-linux", "ld-musl", "[vdso]"}) {
    if (module.starts_with(library)) return true;
  }
  return IsUnnamedRuntime(frame) || Matches(PlainName(frame), kWait);
}

// What a used frame is known by. Code outside all files is somewhere else in each process.
std::string Identity(const v1::Frame& frame) {
  if (!frame.function().empty()) return PlainName(frame);
  return frame.module_offset().empty() ? frame.module() : frame.module() + "+" + frame.module_offset();
}

// The walk from the innermost frame outwards.
class Walk {
 public:
  Walk(const v1::Stack& stack, const FingerprintStart& start, FingerprintFrames* looked_at)
      : frames_(stack.frames()),
        count_(std::min(stack.frames_size(), kMaxFrames)),
        runtime_module_(RuntimeModuleOf(stack)),
        start_(start),
        looked_at_(looked_at) {}

  void Run() {
    using enum FingerprintStart::At;
    int i = start_.at == kRecursion ? RunRecursion() : 0;
    const bool is_recursion = i > 0;
    if (start_.at == kReportOfException) i = RunReport();
    const bool is_report = i > 0 && !is_recursion;
    if (start_.at == kWait) i = RunWait();
    if (start_.at == kLoop) i = RunCalleesOfLoop();
    if (i == 0 && start_.at != kWait && start_.at != kLoop) i = RunNoise();
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
      } else if (IsPartOfCaller(i)) {
        Skip(i, kPart);
      } else {
        UseIfRoom(i);
      }
    }
  }

  // Gives the identities of used frames, innermost first.
  std::vector<std::string> TakeUsed() { return std::move(used_); }

 private:
  // A crash of the runtime's own is known by the innermost of its functions, and by what it ran.
  bool IsRuntimeItself(int i, int first_to_blame) const {
    if (frames_[i].replaced()) return true;
    const bool in_its_file = !runtime_module_.empty() && frames_[i].module() == runtime_module_;
    return in_its_file && i > first_to_blame && !IsOfRuntime(frames_[i]);
  }

  bool IsPartOfCaller(int i) const {
    return frames_[i].origin() == v1::Frame::INLINED && i + 1 < count_ &&
           PlainName(frames_[i]) == PlainName(frames_[i + 1]);
  }

  // Returns the first frame that may be to blame.
  int RunNoise() {
    int i = 0;
    for (; i < count_; ++i) {
      // Where a wild jump landed is chance.
      const bool is_target = i == 0 && start_.at == FingerprintStart::At::kWildJump && frames_[i].function().empty();
      const std::string_view rule = is_target ? "no-code" : NoiseRuleOf(frames_[i], i > 0);
      if (rule.empty()) break;
      Skip(i, rule);
    }
    return i;
  }

  // How a thread waits differs between C libraries, and between a wait that has just begun and one that lasts.
  int RunWait() {
    int i = 0;
    for (; i < count_ && IsOfAWait(frames_[i]); ++i) Skip(i, "wait");
    return i;
  }

  // A loop is met in any of the functions that it calls.
  int RunCalleesOfLoop() {
    const std::string loop = PlainLibcFunction(PlainFunction(start_.loop_function));
    int end = 0;
    while (end < count_ && PlainName(frames_[end]) != loop) ++end;
    if (end == count_) return 0;
    for (int i = 0; i < end; ++i) Skip(i, "called-by-the-loop");
    return end;
  }

  // Skips frames of the package (_exceptions.py) that are not to blame. A language may have unwound the stack before it
  // tells that an exception was not caught. The package then builds the stack up again. Returns the frame that names the
  // exception; 0 if there is none.
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
    v1::FingerprintFrame* frame = looked_at_->Add();
    frame->set_function(frames_[i].function());
    frame->set_module(frames_[i].module());
    return frame;
  }

  const google::protobuf::RepeatedPtrField<v1::Frame>& frames_;
  int count_;
  const std::string_view runtime_module_;
  const FingerprintStart& start_;
  FingerprintFrames* const looked_at_;
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

std::vector<std::string> FramesOfFingerprint(const v1::Stack& stack, const FingerprintStart& start,
                                             FingerprintFrames* looked_at) {
  Walk walk(stack, start, looked_at);
  walk.Run();
  return walk.TakeUsed();
}

std::string FingerprintOfTexts(std::string_view rule, std::span<const std::string> texts) {
  std::string input(rule);
  for (const std::string& text : texts) AddText(text, &input);
  const XXH128_hash_t hash = XXH3_128bits(input.data(), input.size());
  char digits[33];
  snprintf(digits, sizeof(digits), "%016lx%016lx", hash.high64, hash.low64);
  return digits;
}

}  // namespace stackd
