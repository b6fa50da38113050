#include "daemon/fingerprint/crash_fingerprint.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "daemon/assemble/assemble.h"
#include "daemon/symbolize/demangle.h"
#include "daemon/unwind/testing/own_process.h"
#include "daemon/unwind/unwinder.h"

namespace stackd {
namespace {

using testing::ElementsAre;

v1::Stack StackOf(const std::vector<std::string>& functions) {
  v1::Stack stack;
  for (const std::string& function : functions) {
    v1::Frame* frame = stack.add_frames();
    frame->set_function(function);
    frame->set_module("app");
  }
  return stack;
}

v1::Crash CrashWith(const v1::Stack& stack, v1::Crash::Cause cause = v1::Crash::ABORT) {
  v1::Crash crash;
  crash.set_cause(cause);
  AddCrashFingerprint(&stack, "/bin/app", &crash);
  return crash;
}

std::string FingerprintOf(const std::vector<std::string>& functions) { return CrashWith(StackOf(functions)).fingerprint(); }

// "f" of each used frame, "(f: rule)" of each other.
std::vector<std::string> Explained(const v1::Crash& crash) {
  std::vector<std::string> frames;
  for (const v1::FingerprintFrame& frame : crash.fingerprint_frames()) {
    frames.push_back(frame.used() ? frame.function() : "(" + frame.function() + ": " + frame.rule() + ")");
    EXPECT_EQ(frame.used(), frame.rule().empty());
  }
  return frames;
}

TEST(CrashFingerprint, IsThirtyTwoHexDigitsThatStayTheSameForEver) {
  const v1::Crash crash = CrashWith(StackOf({"f", "main"}));
  EXPECT_EQ(crash.fingerprint_rule(), "crash-1");
  EXPECT_EQ(crash.fingerprint(), "161830216167ca34c499304063ff1343") << "whoever changes this gives the rule a new name";
}

TEST(CrashFingerprint, SkipsWhatACrashGoesThroughAfterItsCause) {
  EXPECT_THAT(Explained(CrashWith(StackOf({"__pthread_kill_implementation", "__GI_raise", "__GI_abort",
                                           "__assert_fail_base.cold", "__assert_fail", "app::check(int)", "main",
                                           "__libc_start_call_main", "__libc_start_main_impl", "_start"}))),
              ElementsAre("(__pthread_kill_implementation: raise)", "(__GI_raise: raise)", "(__GI_abort: abort)",
                          "(__assert_fail_base.cold: assertion)", "(__assert_fail: assertion)", "app::check", "main",
                          "(__libc_start_call_main: start-of-thread)", "(__libc_start_main_impl: start-of-thread)",
                          "(_start: start-of-thread)"));
  const std::string expected = FingerprintOf({"f", "main"});
  const std::vector<std::vector<std::string>> noisy = {
      {"raise", "abort", "f", "main"},
      {"raise", "abort", "__libc_message", "__fortify_fail", "__stack_chk_fail", "f", "main", "_start"},
      {"raise", "abort", "__gnu_cxx::__verbose_terminate_handler()", "__cxxabiv1::__terminate(void (*)())",
       "std::terminate()", "__cxa_throw", "std::__throw_out_of_range_fmt(char const*, ...)", "f", "main"},
      {"abort", "_Unwind_Resume", "f", "main", "start_thread", "clone3"},
      {"raise", "abort", "std::sys::pal::unix::abort_internal", "rust_panic", "std::panicking::rust_panic_with_hook",
       "std::panicking::begin_panic_handler::{{closure}}", "rust_begin_unwind", "core::panicking::panic_fmt",
       "core::panicking::panic_bounds_check", "f", "main"},
      {"<signal handler called>", "f", "main"},
  };
  for (const auto& functions : noisy) EXPECT_EQ(FingerprintOf(functions), expected) << functions[functions.size() - 3];
}

TEST(CrashFingerprint, SkipsNoiseOnlyAtTheInnermostEnd) {
  EXPECT_THAT(Explained(CrashWith(StackOf({"f", "raise", "g"}))), ElementsAre("f", "raise", "g"));
}

// "py:f" is Python's; "[f]" runs it, and is of the interpreter's file as "(f)" is.
v1::Stack PythonStack(const std::vector<std::string>& functions) {
  v1::Stack stack;
  for (std::string name : functions) {
    v1::Frame* frame = stack.add_frames();
    if (name.starts_with("py:")) {
      frame->set_origin(v1::Frame::RUNTIME);
      frame->set_language(v1::PYTHON);
      frame->set_function(name.substr(3));
      continue;
    }
    frame->set_replaced(name.starts_with('['));
    const bool is_interpreters = frame->replaced() || name.starts_with('(');
    frame->set_module(is_interpreters ? "libpython3.11.so.1.0" : "ext.so");
    frame->set_function(is_interpreters ? name.substr(1, name.size() - 2) : name);
  }
  return stack;
}

TEST(CrashFingerprint, IsThatOfTheFunctionsWhateverVersionOfTheInterpreterRanThem) {
  const v1::Crash crash = CrashWith(
      PythonStack({"memcpy_it", "method", "(cfunction_call)", "py:load", "[_PyEval_EvalFrameDefault]",
                   "(_PyFunction_Vectorcall)", "py:<module>", "[_PyEval_EvalFrameDefault]", "(Py_RunMain)", "_start"}));
  EXPECT_THAT(Explained(crash),
              ElementsAre("memcpy_it", "method", "(cfunction_call: runtime-itself)", "load",
                          "(_PyEval_EvalFrameDefault: runtime-itself)", "(_PyFunction_Vectorcall: runtime-itself)",
                          "<module>", "(_PyEval_EvalFrameDefault: runtime-itself)", "(Py_RunMain: runtime-itself)",
                          "(_start: start-of-thread)"));
  EXPECT_EQ(CrashWith(PythonStack({"memcpy_it", "method", "(_PyObject_MakeTpCall)", "py:load", "py:<module>",
                                   "[_PyEval_EvalFrameDefault]", "(pymain_run_python)", "(Py_BytesMain)"}))
                .fingerprint(),
            crash.fingerprint());
  EXPECT_NE(CrashWith(PythonStack({"memcpy_it", "method", "(cfunction_call)", "py:save", "py:<module>",
                                   "[_PyEval_EvalFrameDefault]"}))
                .fingerprint(),
            crash.fingerprint());
}

TEST(CrashFingerprint, OfTheInterpretersOwnCrashHasItsInnermostFunction) {
  EXPECT_THAT(Explained(CrashWith(PythonStack(
                  {"raise", "abort", "(PyObject_GC_Del)", "(dict_dealloc)", "py:raise", "[_PyEval_EvalFrameDefault]"}))),
              ElementsAre("(raise: raise)", "(abort: abort)", "PyObject_GC_Del", "(dict_dealloc: runtime-itself)", "raise",
                          "(_PyEval_EvalFrameDefault: runtime-itself)"));
}

TEST(CrashFingerprint, OfAnOverflowInPythonIsOneTurnOfItsFunctions) {
  const auto overflow = [](std::vector<std::string> functions, int begin, int length) {
    v1::Stack stack = PythonStack(functions);
    stack.mutable_frames(begin)->set_repeat_count(5000);
    stack.mutable_frames(begin)->set_repeat_length(length);
    return CrashWith(stack, v1::Crash::STACK_OVERFLOW).fingerprint();
  };
  const std::string expected = overflow({"(new_frame)", "py:even", "[_PyEval_EvalFrameDefault]", "(vectorcall)", "py:odd",
                                         "[_PyEval_EvalFrameDefault]", "(vectorcall)", "py:<module>"},
                                        1, 6);
  EXPECT_EQ(overflow({"(malloc)", "(new_frame)", "py:odd", "[_PyEval_EvalFrameDefault]", "py:even",
                      "[_PyEval_EvalFrameDefault]", "(vectorcall)", "py:odd", "[_PyEval_EvalFrameDefault]", "py:<module>"},
                     2, 4),
            expected);
}

TEST(CrashFingerprint, SkipsTheCxxRuntimesFunctionsWithoutNames) {
  v1::Stack stack = StackOf({"raise", "abort", "", "std::terminate()", "__cxa_throw", "", "f", "main"});
  for (int i : {2, 5}) stack.mutable_frames(i)->set_module("libstdc++.so.6.0.30");
  EXPECT_EQ(CrashWith(stack).fingerprint(), FingerprintOf({"f", "main"}));
  v1::Stack inside = StackOf({"", "f", "main"});
  inside.mutable_frames(0)->set_module("libstdc++.so.6.0.30");
  EXPECT_NE(CrashWith(inside).fingerprint(), FingerprintOf({"f", "main"})) << "it crashed in the runtime itself";
}

TEST(CrashFingerprint, IgnoresWhoCallsTheFirstFunctionAndWhatOnlyHandsCallsOn) {
  const std::string expected = FingerprintOf({"f", "g"});
  const std::vector<std::vector<std::string>> threads = {
      {"f", "std::function<void ()>::operator()() const", "g", "__libc_start_call_main", "__libc_start_main", "_start"},
      {"f", "g", "void std::__invoke_impl<void, void (*)()>(std::__invoke_other, void (*&&)())",
       "std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (*)()> > >::_M_run()", "", "start_thread", "clone3"},
      {"f", "g", "core::ops::function::FnOnce::call_once", "std::sys::backtrace::__rust_begin_short_backtrace",
       "std::panicking::catch_unwind", "<std::sys::thread::unix::Thread>::new::thread_start", "start_thread"},
  };
  for (const auto& functions : threads) EXPECT_EQ(FingerprintOf(functions), expected) << functions.back();
}

TEST(CrashFingerprint, KeepsTheAllocatorsFunctionThatTheProgramCalled) {
  EXPECT_THAT(Explained(CrashWith(
                  StackOf({"raise", "abort", "__libc_message", "malloc_printerr", "_int_free", "__GI___libc_free", "f"}))),
              ElementsAre("(raise: raise)", "(abort: abort)", "(__libc_message: libc-message)",
                          "(malloc_printerr: allocator)", "(_int_free: allocator)", "free", "f"));
}

// Whether free() looks up the arena in a function of its own is the compiler's choice.
TEST(CrashFingerprint, OfAFaultInFreeIsThatOfItsAbort) {
  EXPECT_EQ(FingerprintOf({"arena_for_chunk", "free", "f", "main"}),
            FingerprintOf({"abort", "malloc_printerr", "_int_free", "free", "f", "main"}));
}

// As GCC leaves a function of which it has split off a part, and put that back.
TEST(CrashFingerprint, TakesAFunctionAndItsPartForOne) {
  v1::Stack stack = StackOf({"f.part.0", "f", "main"});
  EXPECT_NE(CrashWith(stack).fingerprint(), FingerprintOf({"f", "main"})) << "a call of itself";
  stack.mutable_frames(0)->set_origin(v1::Frame::INLINED);
  EXPECT_EQ(CrashWith(stack).fingerprint(), FingerprintOf({"f", "main"}));
  EXPECT_THAT(Explained(CrashWith(stack)), ElementsAre("(f.part.0: part-of-its-caller)", "f", "main"));
}

TEST(CrashFingerprint, IsTheSameOnEveryProcessor) {
  EXPECT_EQ(FingerprintOf({"__memcpy_avx_unaligned_erms", "f"}), FingerprintOf({"__memmove_sse2_unaligned", "f"}));
  EXPECT_EQ(FingerprintOf({"__strlen_avx2", "f"}), FingerprintOf({"__strlen_evex", "f"}));
  EXPECT_NE(FingerprintOf({"__strlen_avx2", "f"}), FingerprintOf({"__strcmp_avx2", "f"}));
}

TEST(CrashFingerprint, IgnoresParametersTemplateArgumentsAndClones) {
  const std::string expected = FingerprintOf({"Queue::Pop", "main"});
  for (const char* name : {"Queue<int>::Pop(int)", "bool Queue<std::pair<int, long> >::Pop(int, char) const",
                           "Queue<int>::Pop(int) [clone .cold]", "Queue<int>::Pop(int) [clone .constprop.0]"}) {
    EXPECT_EQ(FingerprintOf({name, "main"}), expected) << name;
  }
}

TEST(CrashFingerprint, TellsCrashesApart) {
  std::set<std::string> fingerprints;
  for (const std::vector<std::string>& functions :
       std::vector<std::vector<std::string>>{{"f", "g"}, {"g", "f"}, {"f"}, {"f", "g", "g"}, {"fg"}, {"a::f", "g"}}) {
    EXPECT_TRUE(fingerprints.insert(FingerprintOf(functions)).second);
  }
}

TEST(CrashFingerprint, UsesEightFrames) {
  std::vector<std::string> functions = {"raise", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
  const std::string fingerprint = FingerprintOf(functions);
  functions.back() = "other";
  EXPECT_EQ(FingerprintOf(functions), fingerprint);
  functions[8] = "other";
  EXPECT_NE(FingerprintOf(functions), fingerprint);
}

TEST(CrashFingerprint, OfAnUnhandledExceptionIsThatOfWhatItWentThrough) {
  const auto unhandled = [](const std::vector<std::string>& functions) {
    return CrashWith(PythonStack(functions), v1::Crash::UNCAUGHT_EXCEPTION);
  };
  const v1::Crash crash =
      unhandled({"syscall", "ffi_call", "py:_ask_for_dump", "[_PyEval_EvalFrameDefault]", "py:unhandled ValueError",
                 "py:pay", "[_PyEval_EvalFrameDefault]", "py:<module>", "(Py_RunMain)"});
  EXPECT_THAT(Explained(crash),
              ElementsAre("(syscall: report-of-the-exception)", "(ffi_call: report-of-the-exception)",
                          "(_ask_for_dump: report-of-the-exception)", "(_PyEval_EvalFrameDefault: report-of-the-exception)",
                          "unhandled ValueError", "pay", "(_PyEval_EvalFrameDefault: runtime-itself)", "<module>",
                          "(Py_RunMain: runtime-itself)"));
  EXPECT_EQ(unhandled({"futex", "py:unhandled ValueError", "py:pay", "py:<module>", "lib_main"}).fingerprint(),
            crash.fingerprint())
      << "wherever its thread was in the agent, and whether its end is known";
  std::vector<std::string> deep(50, "sendmsg");
  for (const char* function : {"py:unhandled ValueError", "py:pay", "py:<module>"}) {
    deep.push_back(function);
    deep.insert(deep.end(), 10, "(call)");
  }
  EXPECT_EQ(unhandled(deep).fingerprint(), crash.fingerprint()) << "how many native functions lie between";
  EXPECT_NE(unhandled({"futex", "py:unhandled KeyError", "py:pay", "py:<module>"}).fingerprint(), crash.fingerprint());
  EXPECT_NE(CrashWith(PythonStack({"futex", "py:unhandled ValueError", "py:pay"})).fingerprint(),
            unhandled({"futex", "py:unhandled ValueError", "py:pay"}).fingerprint())
      << "a function may have that name";
}

TEST(CrashFingerprint, UsesPlacesInFilesWhereThereAreNoNames) {
  const auto unknown = [](const char* module, const char* offset, const char* address) {
    v1::Stack stack = StackOf({"", "main"});
    stack.mutable_frames(0)->set_module(module);
    stack.mutable_frames(0)->set_module_offset(offset);
    stack.mutable_frames(0)->set_address(address);
    return CrashWith(stack).fingerprint();
  };
  EXPECT_EQ(unknown("a.so", "0x1", "0x7001"), unknown("a.so", "0x1", "0x8001")) << "wherever it was loaded";
  EXPECT_NE(unknown("a.so", "0x1", "0x7001"), unknown("a.so", "0x2", "0x7001"));
  EXPECT_EQ(unknown("[anon]", "", "0x7001"), unknown("[anon]", "", "0x8001")) << "where a wild jump lands is chance";
}

TEST(CrashFingerprint, IgnoresWhereAWildJumpLanded) {
  v1::Stack stack = StackOf({"", "f", "main"});
  stack.mutable_frames(0)->set_module_offset("0x6200");
  EXPECT_EQ(CrashWith(stack, v1::Crash::BAD_JUMP).fingerprint(), FingerprintOf({"f", "main"}));
  EXPECT_NE(CrashWith(stack).fingerprint(), FingerprintOf({"f", "main"}));
}

TEST(CrashFingerprint, OfAStackOverflowIsThatOfItsRecursion) {
  const auto overflow = [](const std::vector<std::string>& functions, int repeated) {
    v1::Stack stack = StackOf(functions);
    stack.mutable_frames(repeated)->set_repeat_count(1000);
    stack.mutable_frames(repeated)->set_repeat_length(2);
    return CrashWith(stack, v1::Crash::STACK_OVERFLOW);
  };
  const v1::Crash crash = overflow({"printf", "odd", "even", "main"}, 1);
  EXPECT_THAT(Explained(crash), ElementsAre("(printf: above-the-recursion)", "even", "odd", "main"));
  EXPECT_EQ(overflow({"even", "odd", "main"}, 0).fingerprint(), crash.fingerprint()) << "whoever meets the end first";
  EXPECT_EQ(overflow({"f", "g", "even", "odd", "even", "main"}, 2).fingerprint(), crash.fingerprint())
      << "wherever in a turn it began";
  EXPECT_NE(overflow({"even", "other", "main"}, 0).fingerprint(), crash.fingerprint());
}

TEST(CrashFingerprint, OfACrashWithoutFramesIsThatOfProgramAndSignal) {
  const auto without_frames = [](const char* executable, const char* signal_name) {
    v1::Crash crash;
    crash.set_signal_name(signal_name);
    AddCrashFingerprint(nullptr, executable, &crash);
    return crash.fingerprint();
  };
  EXPECT_EQ(without_frames("/bin/a", "SIGSEGV"), without_frames("/bin/a", "SIGSEGV"));
  EXPECT_NE(without_frames("/bin/a", "SIGSEGV"), without_frames("/bin/b", "SIGSEGV"));
  EXPECT_NE(without_frames("/bin/a", "SIGSEGV"), without_frames("/bin/a", "SIGBUS"));
}

// The stack of this thread from below the functions of `library` up to them, with the names that the dynamic linker knows.
OwnStacks* captures;

void CaptureHere() {
  ucontext_t context;
  getcontext(&context);
  captures->Capture(context, OwnStackTop(), /*with_truth=*/false);
}

v1::Stack StackInLibrary(const std::string& library) {
  OwnStacks stacks(1, 1 << 20);
  captures = &stacks;
  void* handle = dlopen(library.c_str(), RTLD_NOW);
  EXPECT_NE(handle, nullptr) << dlerror();
  reinterpret_cast<int (*)(int, void (*)())>(dlsym(handle, "RunCrashing"))(1, CaptureHere);
  Unwinder unwinder;
  const auto map = OwnAddressMap();
  const OwnStack& own = stacks.stacks().at(0);
  v1::Stack stack;
  for (const NativeFrame& native : unwinder.Unwind(own.registers, FullCopy(own), false, *map).frames) {
    Dl_info info;
    const bool known = dladdr(reinterpret_cast<void*>(native.lookup_avma()), &info) != 0 && info.dli_sname != nullptr;
    if (!known || std::string(info.dli_fname).find("crashing_library") == std::string::npos) continue;
    stack.add_frames()->set_function(Demangle(info.dli_sname, ReturnType::kKeep));
  }
  return stack;
}

TEST(CrashFingerprint, IsTheSameForEveryBuildOfTheSameFunctions) {
  const v1::Crash slow = CrashWith(StackInLibrary("daemon/fingerprint/libcrashing_library_o0.so"));
  const v1::Crash fast = CrashWith(StackInLibrary("daemon/fingerprint/libcrashing_library_o2.so"));
  EXPECT_THAT(Explained(slow), ElementsAre("crashing::Queue::Pop", "crashing::Serve", "crashing::Run", "RunCrashing"));
  EXPECT_EQ(slow.fingerprint(), fast.fingerprint());
}

}  // namespace
}  // namespace stackd
