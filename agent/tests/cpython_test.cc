// The walk over CPython's frames, on structures as 3.12 has them, sound and otherwise. (That the offsets are right, and
// what real interpreters look like, is tests/e2e/python_test.py.)
extern "C" {
#include "agent/runtimes/cpython/cpython.h"

#include "agent/runtimes/cpython/cpython_layout.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "agent/tests/walk_thread.h"
#include "daemon/ring/ring_reader.h"

namespace {

struct Frame {
  uint64_t code = 0;
  Frame* previous = nullptr;
  uint64_t others[5] = {};
  uint64_t position = 0;
  uint32_t pad = 0;
  uint16_t more = 0;
  uint8_t owner = 0;
};
static_assert(offsetof(Frame, position) == 56 && offsetof(Frame, owner) == 70);

struct Calls {  // _PyCFrame
  Frame* frame = nullptr;
  Calls* previous = nullptr;
};

struct Gil {
  uint64_t interval = 5000;
  void* holder = nullptr;
  int32_t locked = 0;
};

struct ThreadState;
struct Interpreter {
  Interpreter* next = nullptr;
  uint64_t others[8] = {};
  ThreadState* threads = nullptr;
  uint64_t more[38] = {};
  Gil* gil = nullptr;
};
static_assert(offsetof(Interpreter, threads) == 72 && offsetof(Interpreter, gil) == 384);

struct ThreadState {
  ThreadState* previous = nullptr;
  ThreadState* next = nullptr;
  Interpreter* interpreter = nullptr;
  uint64_t others[4] = {};
  Calls* calls = nullptr;
  uint64_t more[9] = {};
  uint64_t id = 0;
  uint64_t rest[20] = {};
};
static_assert(offsetof(ThreadState, calls) == 56 && offsetof(ThreadState, id) == 136);

struct Text {
  explicit Text(const char* text);
  uint64_t references = 1;
  const void* type;
  uint64_t length;
  uint64_t hash = 0;
  uint32_t state = 1 << 2 | 1 << 5 | 1 << 6;
  uint32_t pad = 0;
  char characters[32] = {};
};
static_assert(offsetof(Text, characters) == 40);

struct Bytes {
  uint64_t references = 1;
  const void* type;
  uint64_t size = 4;
  uint64_t hash = 0;
  char data[8] = "\x80\x00\xd8";
};

struct Function {
  uint64_t references = 1;
  const void* type;
  uint64_t others[6] = {};
  uint32_t pad = 0;
  int32_t first_line = 12;
  uint64_t more[5] = {};
  const void* file = nullptr;
  const void* name = nullptr;
  const void* qualified_name = nullptr;
  const void* lines = nullptr;
  uint64_t rest[6] = {};
  uint64_t instructions[8] = {};
};
static_assert(offsetof(Function, first_line) == 68 && offsetof(Function, file) == 112 &&
              offsetof(Function, instructions) == 192);

}  // namespace

// What an interpreter exports.
extern "C" {
uint64_t _PyRuntime[16] = {};
// 0: as in a library that is half loaded, when it is looked at first.
unsigned long Py_Version = 0;
char PyCode_Type[8] = {};
char PyUnicode_Type[8] = {};
char PyBytes_Type[8] = {};
}

Text::Text(const char* text) : type(PyUnicode_Type), length(strlen(text)) { strcpy(characters, text); }

namespace stackd {
namespace {

constexpr int kInterpreters = 5;  // word of _PyRuntime

class CpythonTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    stackd_loaded_objects(maps, stackd_cpython_find);
    EXPECT_TRUE(stackd_managed_is_unsettled());
    Py_Version = 0x030c01f0;
    stackd_managed_find_runtimes(maps);
    EXPECT_FALSE(stackd_managed_is_unsettled());
    close(maps);
  }

  CpythonTest() : ring_(std::move(*Ring::Create(1u << 20))) {
    EXPECT_TRUE(stackd_ring_attach(&agent_ring_, ring_->header(), ring_->size_bytes()));
    _PyRuntime[kInterpreters] = Address(&interpreter_);
    interpreter_.gil = &gil_;
    lines_.type = PyBytes_Type;
    for (Function* code : {&inner_code_, &outer_code_}) {
      code->type = PyCode_Type;
      code->file = &file_;
      code->lines = &lines_;
    }
    inner_code_.qualified_name = &inner_name_;
    outer_code_.qualified_name = &outer_name_;
    AddThread(&state_, 0x1000);
    // inner was called by outer, and outer by C code.
    state_.calls = &calls_;
    calls_.frame = &inner_;
    inner_ = FrameOf(&inner_code_, &outer_);
    outer_ = FrameOf(&outer_code_, &entry_);
    entry_.owner = 3;
  }
  ~CpythonTest() override { _PyRuntime[kInterpreters] = 0; }

  static uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

  static Frame FrameOf(Function* code, Frame* previous) {
    Frame frame;
    frame.code = Address(code);
    frame.previous = previous;
    frame.position = Address(&code->instructions[1]);
    return frame;
  }

  void AddThread(ThreadState* state, uint64_t id) {
    state->id = id;
    state->interpreter = &interpreter_;
    state->next = interpreter_.threads;
    if (state->next != nullptr) state->next->previous = state;
    interpreter_.threads = state;
  }

  // As in a dump long after the last.
  std::vector<ManagedTrace> Walk(uint64_t thread_self = 0x1000) {
    now_ns_ += kLong;
    return WalkSoon(thread_self);
  }

  std::vector<ManagedTrace> WalkSoon(uint64_t thread_self = 0x1000) {
    return WalkThread(thread_self, now_ns_, &agent_ring_, ring_.get());
  }

  static std::vector<std::string> Describe(const ManagedTrace& trace) {
    std::vector<std::string> lines;
    for (const ManagedTraceFrame& frame : trace.frames) {
      const auto symbol = std::ranges::find(trace.symbols, frame.key, &ManagedSymbol::key);
      lines.push_back((frame.flags & STACKD_MANAGED_BOUNDARY) != 0
                          ? "-- " + std::to_string(frame.anchor_avma)
                          : (symbol == trace.symbols.end() ? "?" : std::string(symbol->function)) + " +" +
                                std::to_string(frame.position));
    }
    return lines;
  }

  static constexpr uint64_t kLong = 1000000000;
  // Beyond those of the tests before, in whose memory others may be.
  inline static uint64_t now_ns_ = stackd_clock_ns(CLOCK_MONOTONIC) + (1ull << 60);
  std::unique_ptr<Ring> ring_;
  stackd_ring agent_ring_;
  Interpreter interpreter_;
  Gil gil_;
  ThreadState state_;
  Calls calls_;
  Text file_{"/srv/shop.py"}, inner_name_{"Shop.pay"}, outer_name_{"main"};
  Bytes lines_;
  Function inner_code_, outer_code_;
  Frame inner_, outer_, entry_;
};

using Lines = std::vector<std::string>;

TEST_F(CpythonTest, FramesAreWrittenInnermostFirstWithNamesAndWhereTheirCallEnds) {
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].runtime, STACKD_RUNTIME_CPYTHON);
  EXPECT_EQ(traces[0].version, 0x030c01f0u);
  EXPECT_EQ(traces[0].status, STACKD_WALK_WHOLE);
  EXPECT_EQ(traces[0].instance_avma, Address(&interpreter_));
  EXPECT_EQ(Describe(traces[0]), (Lines{"Shop.pay +8", "main +8", "-- " + std::to_string(Address(&entry_))}));
  EXPECT_EQ(traces[0].symbols[0].file, "/srv/shop.py");
  EXPECT_EQ(traces[0].symbols[0].first_line, 12u);
  EXPECT_EQ(traces[0].symbols[0].table, std::string("\x80\x00\xd8\x00", 4));
}

TEST_F(CpythonTest, AWalkThatFindsNoCopiesOfPagesFreeReadsTheSame) {
  std::vector<Frame> frames(100);
  for (size_t i = 0; i < frames.size(); i++)
    frames[i] = FrameOf(i % 3 == 0 ? &inner_code_ : &outer_code_, i + 1 < frames.size() ? &frames[i + 1] : &entry_);
  calls_.frame = frames.data();
  const auto with = Walk();
  std::vector<stackd_page_copies*> taken;
  while (stackd_page_copies* copies = stackd_page_copies_take()) taken.push_back(copies);
  EXPECT_GT(taken.size(), 1u);
  const auto without = Walk();
  for (stackd_page_copies* copies : taken) stackd_page_copies_give_back(copies);
  ASSERT_EQ(with.size(), 1u);
  ASSERT_EQ(without.size(), 1u);
  EXPECT_EQ(with[0].frames.size(), 101u);
  EXPECT_EQ(Describe(with[0]), Describe(without[0]));
}

TEST_F(CpythonTest, AThreadIsToldWhatAnotherHasJustReadOfAFunction) {
  const auto first = Walk();
  // Both would be seen if they were read: a text never changes.
  strcpy(inner_name_.characters, "Shop.???");
  strcpy(lines_.data, "???");
  const auto second = WalkSoon();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].status, STACKD_WALK_WHOLE);
  EXPECT_EQ(Describe(second[0]), Describe(first[0]));
  EXPECT_EQ(second[0].symbols[0].file, "/srv/shop.py");
  EXPECT_EQ(second[0].symbols[0].first_line, 12u);
  EXPECT_EQ(second[0].symbols[0].table, first[0].symbols[0].table);
  EXPECT_EQ(Describe(Walk()[0])[0], "Shop.??? +8") << "long after";
}

TEST_F(CpythonTest, AFunctionThatTookThePlaceOfAnotherIsReadAnew) {
  Walk();
  Text name("pay2"), file("<string>");
  for (int way = 0; way < 4; way++) {
    if (way == 0) inner_code_.qualified_name = &name;
    if (way == 1) inner_code_.file = &file;
    if (way == 2) inner_code_.first_line = 13;
    // Nothing but its number tells.
    if (way == 3) inner_code_.more[0]++, strcpy(name.characters, "pay3");
    const auto traces = WalkSoon();
    ASSERT_EQ(traces.size(), 1u);
    EXPECT_EQ(Describe(traces[0])[0], way == 3 ? "pay3 +8" : "pay2 +8");
    EXPECT_EQ(traces[0].symbols[0].file, way == 0 ? "/srv/shop.py" : "<string>");
    EXPECT_EQ(traces[0].symbols[0].first_line, way < 2 ? 12u : 13u);
  }
}

TEST_F(CpythonTest, WhatCouldNotBeReadIsNotToldToOthers) {
  // The name's end is where nothing is, at first.
  char* memory = static_cast<char*>(mmap(nullptr, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  Text* name = new (memory + 4096 - offsetof(Text, characters) - 8) Text("Shop.pay.elsewhere");
  inner_code_.qualified_name = name;
  ASSERT_EQ(mprotect(memory + 4096, 4096, PROT_NONE), 0);
  EXPECT_NE(Describe(Walk()[0])[0], "Shop.pay.elsewhere +8");
  ASSERT_EQ(mprotect(memory + 4096, 4096, PROT_READ), 0);
  EXPECT_EQ(Describe(WalkSoon()[0])[0], "Shop.pay.elsewhere +8");
  munmap(memory, 2 * 4096);
}

TEST_F(CpythonTest, AFunctionWhoseTableIsLongIsNamedInEachThread) {
  std::vector<char> memory(sizeof(Bytes) + 2000);
  Bytes* lines = new (memory.data()) Bytes;
  lines->type = PyBytes_Type;
  lines->size = 2000;
  inner_code_.lines = lines;
  for (int time = 0; time < 3; time++) {
    const auto traces = WalkSoon();
    ASSERT_EQ(traces.size(), 1u);
    EXPECT_EQ(Describe(traces[0])[0], "Shop.pay +8");
    EXPECT_EQ(traces[0].symbols[0].table.size(), 2000u);
  }
}

TEST_F(CpythonTest, AFunctionThatRecursesIsNamedOnce) {
  std::vector<Frame> frames(500);
  for (size_t i = 0; i < frames.size(); i++)
    frames[i] = FrameOf(&inner_code_, i + 1 < frames.size() ? &frames[i + 1] : &outer_);
  calls_.frame = frames.data();
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].frames.size(), 502u);
  EXPECT_EQ(traces[0].symbols.size(), 2u);
}

TEST_F(CpythonTest, OnlyTheThreadThatHasTheLockIsSaidToHaveIt) {
  EXPECT_EQ(Walk()[0].flags, 0);
  gil_.holder = &state_;
  EXPECT_EQ(Walk()[0].flags, 0) << "the last one that had it";
  gil_.locked = 1;
  EXPECT_EQ(Walk()[0].flags, STACKD_MANAGED_HOLDS_GIL);
  gil_.holder = &gil_;
  EXPECT_EQ(Walk()[0].flags, 0);
}

TEST_F(CpythonTest, AThreadOfNobodysHasNoTrace) { EXPECT_TRUE(Walk(0x2000).empty()); }

TEST_F(CpythonTest, AThreadWhoseStateWasTakenOutOfTheListHasNone) {
  EXPECT_EQ(Walk().size(), 1u);
  interpreter_.threads = nullptr;
  EXPECT_TRUE(Walk().empty());
}

TEST_F(CpythonTest, EachThreadFindsItsOwnState) {
  std::vector<ThreadState> states(3000);
  for (size_t i = 0; i < states.size(); i++) {
    AddThread(&states[i], 0x10000 + i * 64);
    states[i].calls = &calls_;
  }
  gil_.locked = 1;
  for (size_t i : {0u, 17u, 2999u}) {
    gil_.holder = &states[i];
    for (int time = 0; time < 2; time++) {
      const auto traces = Walk(0x10000 + i * 64);
      ASSERT_EQ(traces.size(), 1u);
      EXPECT_EQ(traces[0].flags, STACKD_MANAGED_HOLDS_GIL);
    }
  }
}

TEST_F(CpythonTest, AListOfThreadsThatEndsNowhereEnds) {
  state_.next = &state_;
  EXPECT_TRUE(Walk(0x2000).empty());
  state_.next = reinterpret_cast<ThreadState*>(8);
  EXPECT_TRUE(Walk(0x2000).empty());
  interpreter_.next = &interpreter_;
  EXPECT_TRUE(Walk(0x2000).empty());
}

TEST_F(CpythonTest, FramesThatEndNowhereEndAndAreSaidToBeTooMany) {
  outer_.previous = &inner_;
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_GT(traces[0].frames.size(), 1000u);
  EXPECT_EQ(traces[1].status, STACKD_WALK_LIMIT);
  EXPECT_TRUE(traces[1].frames.empty());
}

TEST_F(CpythonTest, WhatCannotBeReadEndsTheWalk) {
  outer_.previous = reinterpret_cast<Frame*>(16);
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_EQ(Describe(traces[0]), (Lines{"Shop.pay +8", "main +8"}));
  EXPECT_EQ(traces[1].status, STACKD_WALK_UNREADABLE);
}

TEST_F(CpythonTest, WhatIsNoFunctionEndsTheWalk) {
  for (int way = 0; way < 4; way++) {
    outer_code_.type = PyCode_Type;
    outer_code_.qualified_name = &outer_name_;
    outer_name_.state = inner_name_.state;
    outer_name_.length = 4;
    if (way == 0) outer_code_.type = &outer_code_;
    if (way == 1) outer_code_.qualified_name = &lines_;
    if (way == 2) outer_name_.state = 0xffffffff;
    if (way == 3) outer_name_.length = ~0ull;
    const auto traces = Walk();
    ASSERT_EQ(traces.size(), 2u) << way;
    EXPECT_EQ(Describe(traces[0]), (Lines{"Shop.pay +8"}));
    EXPECT_EQ(traces[1].status, STACKD_WALK_BAD_LAYOUT);
  }
}

TEST_F(CpythonTest, ATableThatMakesNoSenseIsLeftOut) {
  lines_.size = ~0ull;
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].symbols[0].table, "");
  EXPECT_EQ(Describe(traces[0])[0], "Shop.pay +8");
}

TEST_F(CpythonTest, ARingThatFillsUpIsSaidToBeFull) {
  // All slots but some.
  std::vector<stackd_ring_writer> others;
  while (stackd_ring_free_slots(&agent_ring_) > 3) {
    others.emplace_back();
    ASSERT_NE(stackd_ring_begin(&others.back(), &agent_ring_, STACKD_RECORD_THREAD, 100, 1), nullptr);
  }
  outer_.previous = &inner_;
  stackd_ring_writer writer;
  ASSERT_NE(stackd_ring_begin(&writer, &agent_ring_, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), 1), nullptr);
  const uint64_t registers[STACKD_REGISTERS] = {};
  stackd_managed_thread thread = ThreadToWalk(0x1000, registers, now_ns_);
  uint32_t words = 0;
  EXPECT_FALSE(stackd_managed_write(&writer, &thread, &words));
  EXPECT_GT(words, 100u);
}

TEST(CpythonLayout, AVersionThatNobodyKnowsHasNone) {
  struct stackd_cpython_layout own;
  uint64_t runtime[96] = {};
  for (uint32_t version : {0u, 0x030700f0u, 0x030f00f0u, 0x040000f0u, ~0u}) {
    EXPECT_EQ(stackd_cpython_layout(version, reinterpret_cast<uint64_t>(runtime), &own), nullptr);
  }
}

TEST(CpythonLayout, OffsetsThatARuntimeTellsAreBelievedWithinReasonOnly) {
  struct stackd_cpython_layout own;
  uint64_t runtime[96];
  const auto reset = [&] {
    std::ranges::fill(runtime, 40);
    runtime[0] = 0x7970677562656478;
    runtime[1] = 0x030d00f0;
    runtime[2] = 0;
  };
  const auto layout = [&] { return stackd_cpython_layout(0x030d00f0, reinterpret_cast<uint64_t>(runtime), &own); };
  reset();
  EXPECT_NE(layout(), nullptr);
  EXPECT_EQ(stackd_cpython_layout(0x030d00f0, 8, &own), nullptr);
  for (size_t i = 0; i < 3; i++) {
    reset();
    runtime[i] ^= 1ull << 20;  // the cookie, the version, whether it has a lock at all
    EXPECT_EQ(layout(), nullptr) << i;
  }
  int refused = 0;
  for (size_t i = 3; i < 96; i++) {
    reset();
    runtime[i] = 1ull << 32;
    refused += layout() == nullptr;
  }
  EXPECT_EQ(refused, 26) << "each that is used";
}

}  // namespace
}  // namespace stackd
