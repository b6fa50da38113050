#include "daemon/analyze/crash/crash_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "daemon/modules/address_map.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

constexpr uint64_t kApp = 0x400000, kHeap = 0x1000000, kLib = 0x7f0000000000, kFile = 0x7f0000100000;
constexpr uint64_t kGuard = 0x7f0000200000, kStack = 0x7f0000201000, kStackEnd = 0x7f0000a01000;
constexpr uint64_t kOtherStack = 0x7f0000a02000, kOtherStackEnd = 0x7f0000a12000;
constexpr uint64_t kMainStack = 0x7ffff0000000, kMainStackEnd = 0x7ffff0021000;
constexpr uint64_t kPageFault = 14, kWrite = 2, kFetch = 16;

Mapping Map(uint64_t start, uint64_t end, const char* permissions, const std::string& path) {
  Mapping mapping{};
  mapping.start_avma = start;
  mapping.end_avma = end;
  mapping.readable = permissions[0] == 'r';
  mapping.writable = permissions[1] == 'w';
  mapping.executable = permissions[2] == 'x';
  mapping.path = path;
  return mapping;
}

// A crash that each test changes in what it is about: thread 14, worker-3, reads something in the app's code.
class ExplainCrashTest : public testing::Test {
 protected:
  ExplainCrashTest() {
    capture_.process.pid = 12;
    capture_.process.argv0 = "/srv/bin/orders";
    capture_.trigger = Trigger::kCrash;
    capture_.map = std::make_shared<const AddressMap>(std::vector{
        Map(kApp, kApp + 0x1000, "r-x", "/srv/bin/orders"),
        Map(kHeap, kHeap + 0x21000, "rw-", "[heap]"),
        Map(kLib, kLib + 0x1000, "r-x", "/usr/lib/libfoo.so"),
        Map(kLib + 0x1000, kLib + 0x2000, "r--", "/usr/lib/libfoo.so"),
        Map(kFile, kFile + 0x4000, "rw-", "/data/table \x1b[2J"),
        Map(kGuard, kStack, "---", ""),
        Map(kStack, kStackEnd, "rw-", ""),
        Map(kStackEnd, kOtherStack, "---", ""),
        Map(kOtherStack, kOtherStackEnd, "rw-", ""),
        Map(kMainStack, kMainStackEnd, "rw-", "[stack]"),
    });
    AddThread(12, "orders", kMainStackEnd - 0x800);
    AddThread(14, "worker-3", kStackEnd - 0x800);
    AddThread(15, "worker-4", kOtherStackEnd - 0x800);
    crash_ = &capture_.crash.emplace();
    crash_->tid = 14;
    crash_->stack_start_avma = kStack;
    crash_->stack_end_avma = kStackEnd;
    Fault(SIGSEGV, SEGV_MAPERR, 0);
  }

  void AddThread(int32_t tid, const std::string& name, uint64_t rsp) {
    ThreadCapture& thread = capture_.threads.emplace_back();
    thread.tid = tid;
    thread.name = name;
    thread.has_stack = true;
    thread.registers.value[Registers::kRsp] = rsp;
    thread.registers.value[Registers::kRip] = kApp + 0x100;
  }

  ThreadCapture& Crashed() { return capture_.threads[1]; }
  void SetRsp(uint64_t rsp) { Crashed().registers.value[Registers::kRsp] = rsp; }
  void SetRip(uint64_t rip) { Crashed().registers.value[Registers::kRip] = rip; }

  void Fault(int signal_number, int code, uint64_t address, uint64_t error = 0, uint64_t number = kPageFault) {
    crash_->signal_number = signal_number;
    crash_->signal_code = code;
    crash_->fault_address_avma = address;
    crash_->trap_error = error;
    crash_->trap_number = number;
  }

  void Sent(int signal_number, int code, int pid, int uid) {
    Fault(signal_number, code, 0);
    crash_->flags = STACKD_CRASH_SENT;
    crash_->sender_pid = pid;
    crash_->sender_uid = uid;
  }

  // By abort(), which the innermost of `functions` is on the way to.
  void Abort(const std::string& message, const std::vector<std::string>& functions = {}) {
    Sent(SIGABRT, SI_TKILL, 12, 1000);
    crash_->abort_message = message;
    Frames(functions);
  }

  void Frames(const std::vector<std::string>& functions) {
    stack_.clear_frames();
    for (const std::string& function : functions) {
      stack_.add_frames()->set_function(function);
      stack_.mutable_frames()->rbegin()->set_module("libfoo.so");
    }
  }

  v1::Crash Explain() const { return ExplainCrash(capture_, &stack_); }

  Capture capture_;
  CrashCapture* crash_;
  v1::Stack stack_;
};

#define EXPECT_CRASH(expected_cause, expected_sentence)  \
  do {                                                   \
    const v1::Crash crash = Explain();                   \
    EXPECT_EQ(crash.explanation(), expected_sentence);   \
    EXPECT_EQ(crash.cause(), v1::Crash::expected_cause); \
  } while (false)

TEST_F(ExplainCrashTest, TellsWhatIsKnownOfTheSignal) {
  crash_->id = {0x123, 0xabc};
  crash_->from_spool = true;
  Fault(SIGSEGV, SEGV_ACCERR, 0x7f12);
  const v1::Crash crash = Explain();
  EXPECT_EQ(crash.id(), "00000000000001230000000000000abc");
  EXPECT_EQ(crash.tid(), 14);
  EXPECT_EQ(crash.signal(), SIGSEGV);
  EXPECT_EQ(crash.signal_name(), "SIGSEGV");
  EXPECT_EQ(crash.code(), SEGV_ACCERR);
  EXPECT_EQ(crash.code_name(), "SEGV_ACCERR");
  EXPECT_EQ(crash.fault_address(), "0x7f12");
  EXPECT_TRUE(crash.from_spool());
  EXPECT_EQ(crash.sender_pid(), 0);
}

TEST_F(ExplainCrashTest, KnowsNullPointers) {
  EXPECT_CRASH(NULL_DEREFERENCE, "read of address 0, which is a null pointer (SIGSEGV, SEGV_MAPERR)");
  Fault(SIGSEGV, SEGV_MAPERR, 0x10);
  EXPECT_CRASH(NULL_DEREFERENCE, "read of address 0x10, which is a null pointer plus 16 (SIGSEGV, SEGV_MAPERR)");
  Fault(SIGSEGV, SEGV_MAPERR, 0x10, kWrite);
  EXPECT_CRASH(NULL_DEREFERENCE, "write to address 0x10, which is a null pointer plus 16 (SIGSEGV, SEGV_MAPERR)");
  Fault(SIGSEGV, SEGV_MAPERR, -uint64_t{8});
  EXPECT_CRASH(NULL_DEREFERENCE,
               "read of address 0xfffffffffffffff8, which is a null pointer minus 8 (SIGSEGV, SEGV_MAPERR)");
  Fault(SIGSEGV, SEGV_MAPERR, 0x10, 0, 0);
  EXPECT_CRASH(NULL_DEREFERENCE, "access to address 0x10, which is a null pointer plus 16 (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, KnowsJumpsToWhereNoCodeIs) {
  SetRip(0);
  Fault(SIGSEGV, SEGV_MAPERR, 0, kFetch);
  EXPECT_CRASH(BAD_JUMP, "jump to address 0: call of a null function pointer (SIGSEGV, SEGV_MAPERR)");
  SetRip(kHeap + 0x10);
  Fault(SIGSEGV, SEGV_ACCERR, kHeap + 0x10, kFetch);
  EXPECT_CRASH(BAD_JUMP, "jump to 0x1000010, which is no code (the heap) (SIGSEGV, SEGV_ACCERR)");
  Fault(SIGSEGV, SEGV_ACCERR, kHeap + 0x10);
  EXPECT_CRASH(BAD_JUMP,
               "jump to 0x1000010, which is no code (the heap) (SIGSEGV, SEGV_ACCERR)");  // by the program counter
  SetRip(kLib + 0x1010);
  Fault(SIGSEGV, SEGV_ACCERR, kLib + 0x1010, kFetch);
  EXPECT_CRASH(BAD_JUMP, "jump to 0x7f0000001010, which is no code (data of libfoo.so) (SIGSEGV, SEGV_ACCERR)");
  SetRip(0x5000000);
  Fault(SIGSEGV, SEGV_MAPERR, 0x5000000, kFetch);
  EXPECT_CRASH(BAD_JUMP, "jump to address 0x5000000, where nothing is mapped (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, KnowsStackOverflows) {
  const auto overflow = "stack overflow of thread worker-3: 8.0 MiB are used up (SIGSEGV, SEGV_ACCERR)";
  // A call, a store into a large frame, a probe below the stack pointer, the red zone.
  for (auto [rsp, fault] : {std::pair(kStack, kStack - 8),
                            {kStack - 0x3000, kStack - 0x20},
                            {kStack + 0x10, kStack - 0x800},
                            {kStack + 8, kStack - 0x70}}) {
    SetRsp(rsp);
    Fault(SIGSEGV, SEGV_ACCERR, fault, kWrite);
    EXPECT_CRASH(STACK_OVERFLOW, overflow);
  }
  crash_->stack_start_avma = crash_->stack_end_avma = 0;
  SetRsp(kStack - 0x10);
  EXPECT_CRASH(STACK_OVERFLOW, overflow);  // by the mapping above the guard page
}

TEST_F(ExplainCrashTest, KnowsAFrameThatIsLargerThanTheStack) {
  const uint64_t rsp = kFile - (64 << 20);
  SetRsp(rsp);
  Fault(SIGSEGV, SEGV_MAPERR, rsp, kWrite);
  EXPECT_EQ(Explain().cause(), v1::Crash::BAD_ADDRESS) << "the next memory above the stack pointer is a file";
  const v1::Crash crash = ExplainCrash(capture_, &stack_, kStackEnd - 0x800);
  EXPECT_EQ(crash.cause(), v1::Crash::STACK_OVERFLOW);
  EXPECT_EQ(crash.explanation(),
            "stack overflow of thread worker-3: one frame of 73 MiB in a stack of 8.0 MiB (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, TakesAFrameForTooLargeIfNothingElseIsNearTheStackPointer) {
  crash_->tid = 12;
  crash_->stack_start_avma = kMainStack;
  crash_->stack_end_avma = kMainStackEnd;
  const uint64_t rsp = kMainStack - (64 << 20);
  capture_.threads[0].registers.value[Registers::kRsp] = rsp;
  Fault(SIGSEGV, SEGV_MAPERR, rsp, kWrite);
  EXPECT_CRASH(STACK_OVERFLOW,
               "stack overflow of the main thread: one frame of 64 MiB in a stack that had grown to 132 KiB (SIGSEGV, "
               "SEGV_MAPERR)");
}

// PID 1 of a namespace gets no SIGABRT, and what abort() does then is another signal.
TEST_F(ExplainCrashTest, KnowsAnAbortThatEndsByItsOwnInstruction) {
  for (const char* message : {"", "free(): invalid pointer"}) {
    Abort(message, {"__GI_abort", "abort", "GiveUp", "main"});
    const v1::Crash expected = Explain();
    Fault(SIGSEGV, SI_KERNEL, 0);
    crash_->flags = 0;
    EXPECT_EQ(Explain().explanation(), expected.explanation());
    EXPECT_EQ(Explain().cause(), expected.cause());
    EXPECT_EQ(Explain().signal_name(), "SIGSEGV");
  }
  stack_.mutable_frames(0)->set_function("GiveUp");
  EXPECT_THAT(Explain().explanation(), testing::HasSubstr("SIGSEGV, SI_KERNEL"));
}

TEST_F(ExplainCrashTest, KnowsThatAFaultInMallocIsOfACorruptHeap) {
  const auto fault_in = [this](std::initializer_list<const char*> functions) {
    stack_.clear_frames();
    for (const char* function : functions) {
      v1::Frame& frame = *stack_.add_frames();
      frame.set_function(function);
      frame.set_module("libc.so.6");
    }
    Fault(SIGSEGV, SEGV_MAPERR, 0x30);
  };
  fault_in({"_int_malloc", "__GI___libc_malloc", "main"});
  EXPECT_CRASH(
      HEAP_CORRUPTION,
      "the heap is corrupt, and what wrote over it is unknown: in int_malloc(), read of address 0x30, which is a null "
      "pointer plus 48 (SIGSEGV, SEGV_MAPERR)");
  fault_in({"unlink_chunk", "_int_malloc", "main"});
  stack_.mutable_frames(0)->set_origin(v1::Frame::INLINED);
  EXPECT_THAT(Explain().explanation(), testing::StartsWith("the heap is corrupt"));
  fault_in({"__GI___libc_free", "main"});
  EXPECT_CRASH(NULL_DEREFERENCE,
               "read of address 0x30, which is a null pointer plus 48, in free(): the heap is corrupt, or it was given a "
               "pointer that is not malloc's (SIGSEGV, SEGV_MAPERR)");
  fault_in({"strlen", "main"});
  EXPECT_THAT(Explain().explanation(), testing::Not(testing::HasSubstr("heap")));
  fault_in({"_int_malloc", "main"});
  stack_.mutable_frames(0)->set_module("bank");
  EXPECT_THAT(Explain().explanation(), testing::Not(testing::HasSubstr("heap")));
}

// As from glibc 2.42 on: worker-3 has the upper of two stacks, and the agent says where its guard page ends.
TEST_F(ExplainCrashTest, KnowsAGuardPageThatIsNoMappingOfItsOwn) {
  capture_.map = std::make_shared<const AddressMap>(
      std::vector{Map(kApp, kApp + 0x1000, "r-x", "/srv/bin/orders"), Map(kGuard - 0x801000, kStackEnd, "rw-", "")});
  capture_.threads[2].registers.value[Registers::kRsp] = kGuard - 0x2000;
  SetRsp(kGuard + 0x40);
  Fault(SIGSEGV, SEGV_MAPERR, kGuard + 0x38, kWrite);
  EXPECT_CRASH(STACK_OVERFLOW, "stack overflow of thread worker-3: 8.0 MiB are used up (SIGSEGV, SEGV_MAPERR)");

  crash_->stack_start_avma = kGuard - 0x801000;
  SetRsp(kStackEnd - 0x800);
  EXPECT_CRASH(PERMISSION,
               "write to address 0x7f0000200038, in the guard page of the stack of thread worker-3 (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, KnowsMemoryThatWasNotThereWhenItWasTouched) {
  Fault(SIGSEGV, SEGV_MAPERR, kHeap + 0x10, kWrite);
  EXPECT_CRASH(
      BAD_ADDRESS,
      "write to address 0x1000010, in the heap: a guard page of it, or mapped only since then (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, NamesTheRecursionThatUsedUpTheStack) {
  SetRsp(kStack - 0x10);
  Fault(SIGSEGV, SEGV_ACCERR, kStack - 8, kWrite);
  Frames({"leaf", "walk(Node*)", "main"});
  stack_.mutable_frames(1)->set_repeat_count(65'412);
  EXPECT_CRASH(
      STACK_OVERFLOW,
      "stack overflow of thread worker-3: 8.0 MiB are used up, by recursion of walk(Node*) (SIGSEGV, SEGV_ACCERR)");
}

TEST_F(ExplainCrashTest, KnowsAStackOverflowOfTheMainThread) {
  crash_->tid = 12;
  crash_->stack_start_avma = kMainStack;
  crash_->stack_end_avma = kMainStackEnd;
  capture_.threads[0].registers.value[Registers::kRsp] = kMainStack - 0x40;
  Fault(SIGSEGV, SEGV_MAPERR, kMainStack - 0x38, kWrite);
  EXPECT_CRASH(STACK_OVERFLOW, "stack overflow of the main thread: 132 KiB are used up (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, TakesNoOtherFaultForAStackOverflow) {
  // The stack pointer is where it should be: something else ran into the guard page.
  Fault(SIGSEGV, SEGV_ACCERR, kStack - 8, kWrite);
  EXPECT_CRASH(PERMISSION,
               "write to address 0x7f0000200ff8, in the guard page of the stack of thread worker-3 "
               "(SIGSEGV, SEGV_ACCERR)");
  // Far below the stack.
  SetRsp(kStack - 0x40000000);
  Fault(SIGSEGV, SEGV_MAPERR, kStack - 0x40000000, kWrite);
  EXPECT_NE(Explain().cause(), v1::Crash::STACK_OVERFLOW);
}

TEST_F(ExplainCrashTest, NamesTheThreadWhoseGuardPageWasHit) {
  Fault(SIGSEGV, SEGV_ACCERR, kOtherStack - 0x10, kWrite);
  EXPECT_CRASH(PERMISSION,
               "write to address 0x7f0000a01ff0, in the guard page of the stack of thread worker-4 "
               "(SIGSEGV, SEGV_ACCERR)");
}

TEST_F(ExplainCrashTest, TellsThreadsOfOneNameApart) {
  capture_.threads[2].name = "worker-3";
  Fault(SIGSEGV, SEGV_ACCERR, kOtherStack - 0x10, kWrite);
  EXPECT_CRASH(PERMISSION,
               "write to address 0x7f0000a01ff0, in the guard page of the stack of thread worker-3 (tid 15) "
               "(SIGSEGV, SEGV_ACCERR)");
}

TEST_F(ExplainCrashTest, SaysThatTheStackPointerIsWrong) {
  SetRsp(0x1234);
  Fault(SIGSEGV, SEGV_MAPERR, 0x122c, kWrite);
  EXPECT_CRASH(BAD_ADDRESS, "the stack pointer is wrong: it is 0x1234, where no stack is (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, SaysWhatForbidsAnAccess) {
  Fault(SIGSEGV, SEGV_ACCERR, kLib + 0x1010, kWrite);
  EXPECT_CRASH(PERMISSION, "write to address 0x7f0000001010, in the read-only memory of libfoo.so (SIGSEGV, SEGV_ACCERR)");
  Fault(SIGSEGV, SEGV_ACCERR, kApp + 0x10, kWrite);
  EXPECT_CRASH(PERMISSION, "write to address 0x400010, in the code of orders (SIGSEGV, SEGV_ACCERR)");
  Fault(SIGSEGV, SEGV_PKUERR, kHeap, kWrite);
  EXPECT_CRASH(PERMISSION,
               "write to address 0x1000000, in the heap, which a protection key or a change since then forbids "
               "(SIGSEGV, SEGV_PKUERR)");
}

TEST_F(ExplainCrashTest, SaysWhatIsNextToAnAddressWhereNothingIsMapped) {
  Fault(SIGSEGV, SEGV_MAPERR, 0x123456789000);
  EXPECT_CRASH(BAD_ADDRESS, "read of address 0x123456789000, where nothing is mapped (SIGSEGV, SEGV_MAPERR)");
  Fault(SIGSEGV, SEGV_MAPERR, kHeap + 0x21018, kWrite);
  EXPECT_CRASH(BAD_ADDRESS,
               "write to address 0x1021018, where nothing is mapped: 24 bytes behind the end of the heap "
               "(SIGSEGV, SEGV_MAPERR)");
  Fault(SIGSEGV, SEGV_MAPERR, 0xffffffff81000000);
  EXPECT_CRASH(BAD_ADDRESS, "read of address 0xffffffff81000000, which belongs to the kernel (SIGSEGV, SEGV_MAPERR)");
}

TEST_F(ExplainCrashTest, KnowsAddressesThatCannotExist) {
  Fault(SIGSEGV, SI_KERNEL, 0, 0, 13);
  EXPECT_CRASH(NON_CANONICAL_ADDRESS, "use of an address that cannot exist (non-canonical) (SIGSEGV, SI_KERNEL)");
  EXPECT_EQ(Explain().fault_address(), "") << "the kernel gives none";
  Fault(SIGBUS, SI_KERNEL, 0, 0, 12);
  EXPECT_CRASH(NON_CANONICAL_ADDRESS,
               "the stack pointer or frame pointer is an address that cannot exist (non-canonical) (SIGBUS, SI_KERNEL)");
}

TEST_F(ExplainCrashTest, KnowsBusErrors) {
  Fault(SIGBUS, BUS_ADRERR, kFile + 0x2000);
  EXPECT_CRASH(BUS_ERROR,
               "read of address 0x7f0000102000: the mapped file /data/table ?[2J is shorter than its mapping, or "
               "its file system is full (SIGBUS, BUS_ADRERR)");
  Fault(SIGBUS, BUS_ADRALN, kFile + 1, kWrite);
  EXPECT_CRASH(BUS_ERROR, "write to address 0x7f0000100001, which is not aligned (SIGBUS, BUS_ADRALN)");
  Fault(SIGBUS, BUS_MCEERR_AR, kHeap);
  EXPECT_CRASH(BUS_ERROR, "read of address 0x1000000: the hardware reports failing memory (SIGBUS, BUS_MCEERR_AR)");
}

TEST_F(ExplainCrashTest, KnowsArithmetic) {
  Fault(SIGFPE, FPE_INTDIV, kApp);
  EXPECT_CRASH(ARITHMETIC, "integer division by zero (or of the smallest integer by -1) (SIGFPE, FPE_INTDIV)");
  Fault(SIGFPE, FPE_FLTDIV, kApp);
  EXPECT_CRASH(ARITHMETIC, "floating-point division by zero (SIGFPE, FPE_FLTDIV)");
}

TEST_F(ExplainCrashTest, KnowsInstructionsThatStopAProgram) {
  Fault(SIGILL, ILL_ILLOPN, kApp);
  EXPECT_CRASH(ILLEGAL_INSTRUCTION, "an instruction that this processor does not know (SIGILL, ILL_ILLOPN)");
  Fault(SIGTRAP, SI_KERNEL, 0);
  EXPECT_CRASH(BREAKPOINT, "trap without a debugger (SIGTRAP, SI_KERNEL)");
  Fault(SIGSYS, 1, kApp);
  EXPECT_CRASH(BAD_SYSTEM_CALL, "a system call that the seccomp filter forbids (SIGSYS, SYS_SECCOMP)");
}

TEST_F(ExplainCrashTest, ShowsAFailedAssertionAsItStandsInTheSource) {
  Abort("orders: src/file.c:12: f: Assertion `x > 0' failed.\n");
  EXPECT_CRASH(ASSERTION, "assertion failed: src/file.c:12: f: x > 0");
  Abort("a.cc:7: bool T::g(int): Assertion `!strcmp(\"a: b\", s) && `q'' failed.\n");
  EXPECT_CRASH(ASSERTION, "assertion failed: a.cc:7: bool T::g(int): !strcmp(\"a: b\", s) && `q'");
}

TEST_F(ExplainCrashTest, ShowsTheLastWordsOfTheCLibrary) {
  Abort("free(): invalid pointer\n");
  EXPECT_CRASH(HEAP_CORRUPTION, "abort: free(): invalid pointer");
  EXPECT_EQ(Explain().abort_message(), "free(): invalid pointer");
  Abort("double free or corruption (fasttop)");
  EXPECT_CRASH(HEAP_CORRUPTION, "abort: double free or corruption (fasttop)");
  Abort("corrupted size vs. prev_size");
  EXPECT_CRASH(HEAP_CORRUPTION, "abort: corrupted size vs. prev_size");
  Abort("*** stack smashing detected ***: terminated");
  EXPECT_CRASH(FORTIFY, "stack smashing detected: a function wrote over the end of a buffer on its stack");
  Abort("*** buffer overflow detected ***: terminated");
  EXPECT_EQ(Explain().cause(), v1::Crash::FORTIFY);
  Abort("*** %n in writable segment detected ***: terminated");
  EXPECT_CRASH(FORTIFY, "abort: *** %n in writable segment detected ***: terminated");
  Abort("evil \x1b[2J\nline");
  EXPECT_CRASH(ABORT, "abort: evil ?[2J?line");
}

TEST_F(ExplainCrashTest, NamesTheTypeOfAnExceptionThatTheProgramItselfReported) {
  Fault(0, 0, 0);
  // What is a name of C++'s is none here.
  for (const char* type : {"ValueError", "i"}) {
    crash_->exception_type = type;
    Crashed().name = "till";
    EXPECT_CRASH(UNCAUGHT_EXCEPTION, std::string("unhandled ") + type + " in thread till");
    EXPECT_EQ(Explain().exception_type(), type);
    EXPECT_EQ(Explain().signal_name(), "");
    EXPECT_EQ(Explain().fault_address(), "");
  }
  capture_.threads.clear();
  EXPECT_CRASH(UNCAUGHT_EXCEPTION, "unhandled i");
}

TEST_F(ExplainCrashTest, NamesTheTypeOfAnUncaughtException) {
  const std::vector<std::string> terminate = {
      "raise", "abort", "__gnu_cxx::__verbose_terminate_handler()", "std::terminate()", "__cxa_throw", "f(int)"};
  Abort("", terminate);
  crash_->exception_type = "St13runtime_error";
  EXPECT_CRASH(UNCAUGHT_EXCEPTION, "uncaught C++ exception of type std::runtime_error");
  EXPECT_EQ(Explain().exception_type(), "std::runtime_error");
  crash_->exception_type = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
  EXPECT_CRASH(UNCAUGHT_EXCEPTION, "uncaught C++ exception of type std::string");
  crash_->exception_type = "i";
  EXPECT_CRASH(UNCAUGHT_EXCEPTION, "uncaught C++ exception of type int");
  crash_->exception_type = "N3foo\x1b(";
  EXPECT_CRASH(UNCAUGHT_EXCEPTION, "uncaught C++ exception of type N3foo?(");  // no mangled name
  crash_->exception_type = "St13runtime_error";
  Frames({"raise", "abort", "f(int)", "main"});
  EXPECT_CRASH(ABORT, "abort() while a C++ exception of type std::runtime_error was being handled");
}

TEST_F(ExplainCrashTest, KnowsTheRuntimeThatGaveUpWithoutItsNames) {
  Abort("", {"raise", "abort", "", "__gxx_personality_v0", "_Unwind_RaiseException", "__cxa_throw", "f(int)"});
  stack_.mutable_frames(2)->set_module("libstdc++.so.6.0.30");
  crash_->exception_type = "i";
  EXPECT_CRASH(UNCAUGHT_EXCEPTION, "uncaught C++ exception of type int in a noexcept function");
}

TEST_F(ExplainCrashTest, KnowsTheOtherWaysToAbort) {
  Abort("", {"raise", "abort", "int app::check<int>(int) [clone .cold]", "main"});
  EXPECT_CRASH(ABORT, "abort() called by app::check (libfoo.so)");
  Abort("", {"raise", "__GI_abort", "abort", "app::check()", "main"});
  EXPECT_CRASH(ABORT, "abort() called by app::check (libfoo.so)");
  Abort("", {"raise", "abort", "", "main"});
  EXPECT_CRASH(ABORT, "abort() called by libfoo.so");
  Abort("", {"raise", "abort", "std::terminate()", "std::thread::~thread()", "main"});
  EXPECT_CRASH(ABORT, "std::terminate(): a std::thread that was not joined was destroyed");
  Abort("", {"raise", "abort", "std::terminate()", "__cxa_rethrow", "main"});
  EXPECT_CRASH(ABORT, "std::terminate(): `throw;` without an exception that is being handled");
  Abort("", {"raise", "abort", "std::terminate()", "__cxa_pure_virtual", "main"});
  EXPECT_CRASH(ABORT, "abort: call of a pure virtual function");
  Abort("", {"abort", "std::sys::unix::abort_internal", "rust_panic", "core::panicking::panic_fmt", "app::main"});
  EXPECT_CRASH(ABORT, "Rust panic");
  Abort("", {"abort", "rust_panic", "core::panicking::panic_fmt", "core::panicking::panic_bounds_check", "app::main"});
  EXPECT_CRASH(ABORT, "Rust panic: index out of bounds");
  Abort("",
        {"abort", "rust_panic", "core::panicking::panic_fmt", "core::panicking::panic_const::panic_const_add_overflow"});
  EXPECT_CRASH(ABORT, "Rust panic: arithmetic overflow");
  Abort("", {"__pthread_kill_implementation", "raise", "main"});
  EXPECT_CRASH(SENT, "SIGABRT sent by itself with raise()");
}

TEST_F(ExplainCrashTest, NamesTheSenderOfASignal) {
  Sent(SIGABRT, SI_USER, 77, 1000);
  EXPECT_CRASH(SENT, "SIGABRT sent by process 77 (uid 1000)");
  EXPECT_EQ(Explain().sender_pid(), 77);
  EXPECT_EQ(Explain().sender_uid(), 1000);
  Sent(SIGSEGV, SI_USER, 77, 0);
  EXPECT_CRASH(SENT, "SIGSEGV sent by process 77 (uid 0) (SI_USER)");
  EXPECT_EQ(Explain().fault_address(), "");
  Sent(SIGSEGV, SI_TKILL, 12, 1000);
  Frames({"__GI_raise", "main"});
  EXPECT_CRASH(SENT, "SIGSEGV sent by itself with raise() (SI_TKILL)");
  Frames({"f", "main"});
  EXPECT_CRASH(SENT, "SIGSEGV sent by itself (SI_TKILL)");
  Sent(SIGBUS, SI_QUEUE, 0, 0);
  EXPECT_CRASH(SENT, "SIGBUS sent by a process outside of its PID namespace (SI_QUEUE)");
  Sent(40, SI_QUEUE, 77, -2);
  EXPECT_CRASH(SENT, "signal 40 sent by process 77 (uid 4294967294) (SI_QUEUE)");
}

TEST_F(ExplainCrashTest, ExplainsACrashOfWhichNothingElseWasCaptured) {
  capture_.map = nullptr;
  capture_.threads.clear();
  for (int signal_number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, 0, -1, 1000}) {
    for (int code : {-60, -6, 0, 1, 2, 128, 1 << 30}) {
      for (uint64_t address : {uint64_t{0}, uint64_t{0x123456}, ~uint64_t{0}}) {
        Fault(signal_number, code, address);
        EXPECT_NE(ExplainCrash(capture_, nullptr).explanation(), "");
      }
    }
  }
}

}  // namespace
}  // namespace stackd
