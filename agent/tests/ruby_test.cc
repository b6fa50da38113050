// The walk over Ruby's frames, on structures as 3.1 has them, sound and otherwise. (That the offsets are right, and what
// real ones look like, is tests/e2e/ruby_test.py.)
extern "C" {
#include "agent/runtimes/ruby/ruby.h"

#include "agent/runtimes/ruby/ruby_layout.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "agent/tests/walk_thread.h"
#include "daemon/ring/ring_reader.h"

// What a Ruby exports. Its code is that of the C compiler for such a load.
extern "C" {
thread_local uint64_t current_context = 0;
extern const char ruby_version[];
const char ruby_version[] = "3.1.2";
void rb_thread_current();
}
asm(R"(
  .text
  .globl rb_thread_current
  .type rb_thread_current, @function
rb_thread_current:
  endbr64
  mov %fs:current_context@tpoff, %rax
  mov 0x30(%rax), %rax
  ret
  .skip 48, 0x90
)");

namespace stackd {
namespace {

constexpr uint64_t kFinish = 0x20;  // VM_FRAME_FLAG_FINISH

struct Text {
  explicit Text(const char* text) : flags(0x05 | strlen(text) << 14) { strcpy(characters, text); }
  uint64_t flags, type = 0;
  char characters[24] = {};
};

struct Line {
  int32_t line = 0, node = 0;
  uint32_t events = 0;
};
static_assert(sizeof(Line) == 12);

// struct succ_index_table: counts of 7 bits, nine a word.
struct LineIndex {
  uint64_t first[6] = {};
  struct {
    uint32_t count = 0, pad = 0;
    uint64_t word_counts = 0, bits[8] = {};
  } block;
};

struct Body {
  uint32_t type = 0, count = 0;
  const uint64_t* words = nullptr;
  uint64_t others[6] = {};
  const void* path = nullptr;
  const void* base_label = nullptr;
  const Text* label = nullptr;
  uint64_t more[4] = {};
  const Line* lines = nullptr;
  const void* positions = nullptr;
  uint32_t line_count = 0, pad = 0;
  const LineIndex* index = nullptr;
};
static_assert(offsetof(Body, path) == 64 && offsetof(Body, label) == 80 && offsetof(Body, lines) == 120 &&
              offsetof(Body, line_count) == 136 && offsetof(Body, index) == 144);

struct Code {
  uint64_t flags = 0x1a | 7 << 12, others = 0;
  const Body* body = nullptr;
};

struct Frame {
  const uint64_t* pc = nullptr;
  uint64_t sp = 0;
  const Code* code = nullptr;
  uint64_t self = 0;
  const uint64_t* flags = nullptr;
  uint64_t others[3] = {};
};
static_assert(sizeof(Frame) == 64);

struct Ractor {
  uint64_t others[42] = {};
  const void* running = nullptr;
};
static_assert(offsetof(Ractor, running) == 336);

struct Context;
struct Thread {
  uint64_t others[3] = {};
  const Ractor* ractor = nullptr;
  uint64_t vm = 0;
  const Context* context = nullptr;
};

struct Context {
  const void* stack = nullptr;
  uint64_t stack_words = 0;
  const Frame* frame = nullptr;
  const void* tag = nullptr;
  uint64_t others[2] = {};
  const Thread* thread = nullptr;
};
static_assert(offsetof(Context, thread) == 48);

// struct rb_vm_tag, as __builtin_setjmp() and as glibc's setjmp() fill it in.
struct CompilerTag {
  uint64_t tag[2] = {}, frame = 0, place = 0, others[3] = {};
  const void* previous = nullptr;
};
struct LibraryTag {
  uint64_t tag[2] = {}, others[7] = {}, place = 0, more[17] = {};
  const void* previous = nullptr;
};
static_assert(offsetof(CompilerTag, previous) == 56 && offsetof(LibraryTag, place) == 72 &&
              offsetof(LibraryTag, previous) == 216);

using Lines = std::vector<std::string>;

class RubyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    stackd_managed_find_runtimes(maps);
    EXPECT_FALSE(stackd_managed_is_unsettled());
    EXPECT_TRUE(stackd_runtimes_need_memory());
    close(maps);
  }

  RubyTest() : ring_(std::move(*Ring::Create(1u << 20))) {
    EXPECT_TRUE(stackd_ring_attach(&agent_ring_, ring_->header(), ring_->size_bytes()));
    for (int i = 0; i < 3; i++) lines_[i].line = 10 * (i + 1);
    // Instructions begin at 0, 2 and 60.
    for (int place = 0; place < 54; place++) index_.first[place / 9] |= (place < 2 ? 1ull : 2ull) << place % 9 * 7;
    index_.block = {.count = 2, .bits = {1ull << 6}};
    for (Body* body : {&pay_body_, &main_body_}) {
      body->count = 100;
      body->words = words_;
      body->path = &file_;
      body->lines = lines_;
      body->line_count = 3;
      body->index = &index_;
    }
    pay_body_.label = &pay_name_;
    main_body_.label = &main_name_;
    pay_.body = &pay_body_;
    main_.body = &main_body_;
    // sleep, in C, was called by pay, that by C code, which the file's own code called.
    stack_[0] = {.flags = &plain_};
    stack_[1] = {.pc = words_ + 3, .code = &pay_, .flags = &finish_};
    stack_[2] = {.flags = &plain_};
    stack_[3] = {.pc = words_ + 61, .code = &main_, .flags = &finish_};
    stack_[4] = {.flags = &finish_};
    context_ = {.stack = stack_, .stack_words = sizeof(stack_) / 8, .frame = stack_, .thread = &thread_};
    thread_.ractor = &ractor_;
    thread_.context = &context_;
    current_context = reinterpret_cast<uint64_t>(&context_);
  }
  ~RubyTest() override { current_context = 0; }

  std::vector<ManagedTrace> Walk() {
    return WalkThread(stackd_fs_base(), stackd_clock_ns(CLOCK_MONOTONIC), &agent_ring_, ring_.get());
  }

  static Lines Describe(const ManagedTrace& trace) {
    Lines lines;
    for (const ManagedTraceFrame& frame : trace.frames) {
      const auto symbol = std::ranges::find(trace.symbols, frame.key, &ManagedSymbol::key);
      const std::string name = symbol == trace.symbols.end() ? "?" : std::string(symbol->function);
      lines.push_back((frame.flags & STACKD_MANAGED_BOUNDARY) != 0 ? "--" : name + ":" + std::to_string(frame.position));
    }
    return lines;
  }

  std::unique_ptr<Ring> ring_;
  stackd_ring agent_ring_;
  uint64_t words_[100] = {};
  const uint64_t plain_ = 0, finish_ = kFinish;
  Line lines_[3];
  LineIndex index_;
  Text file_{"/srv/shop.rb"}, pay_name_{"block in pay"}, main_name_{"<main>"};
  Body pay_body_, main_body_;
  Code pay_, main_;
  Frame stack_[5];
  Ractor ractor_;
  Thread thread_;
  Context context_;
};

TEST_F(RubyTest, FramesAreWrittenInnermostFirstWithNamesLinesAndWhereTheirCallEnds) {
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].runtime, STACKD_RUNTIME_RUBY);
  EXPECT_EQ(traces[0].version, 30102u);
  EXPECT_EQ(traces[0].status, STACKD_WALK_WHOLE);
  EXPECT_EQ(traces[0].instance_avma, current_context);
  EXPECT_EQ(Describe(traces[0]), (Lines{"block in pay:20", "--", "<main>:30", "--"}));
  EXPECT_EQ(traces[0].symbols[0].file, "/srv/shop.rb");
}

// Innermost: rb_ensure(), vm_exec(), rb_rescue(), vm_exec(), and what began the thread.
constexpr uint64_t kTagPlaces[] = {0x5000, 0x1000, 0x6000, 0x1000, 0x7000};

std::vector<uint64_t> AnchorsOf(const ManagedTrace& trace) {
  std::vector<uint64_t> anchors;
  for (const ManagedTraceFrame& frame : trace.frames) {
    if ((frame.flags & STACKD_MANAGED_BOUNDARY) != 0) anchors.push_back(frame.anchor_avma);
  }
  return anchors;
}

TEST_F(RubyTest, CallsOfTheInterpreterAreAnchoredAtTheirTagsOnTheCStack) {
  uint64_t guard;
  asm("mov %%fs:0x30, %0" : "=r"(guard));
  CompilerTag by_compiler[5];
  LibraryTag by_library[5];
  for (int i = 0; i < 5; i++) {
    by_compiler[i].place = kTagPlaces[i];
    by_library[i].place = (kTagPlaces[i] ^ guard) << 17 | (kTagPlaces[i] ^ guard) >> 47;
    if (i == 4) break;
    by_compiler[i].previous = &by_compiler[i + 1];
    by_library[i].previous = &by_library[i + 1];
  }
  using Anchors = std::vector<uint64_t>;
  context_.tag = by_compiler;
  EXPECT_EQ(AnchorsOf(Walk()[0]),
            (Anchors{reinterpret_cast<uint64_t>(&by_compiler[1]), reinterpret_cast<uint64_t>(&by_compiler[3])}));
  context_.tag = by_library;
  EXPECT_EQ(AnchorsOf(Walk()[0]),
            (Anchors{reinterpret_cast<uint64_t>(&by_library[1]), reinterpret_cast<uint64_t>(&by_library[3])}));
  // One more than there are calls, one less, and tags that do not hang together.
  by_library[0].place = by_library[1].place;
  EXPECT_EQ(AnchorsOf(Walk()[0]), (Anchors{0, 0}));
  by_library[0].place = by_library[1].place = 0;
  EXPECT_EQ(AnchorsOf(Walk()[0]), (Anchors{0, 0}));
  for (const void* previous : {static_cast<const void*>(by_library), reinterpret_cast<const void*>(16)}) {
    by_library[3].previous = previous;
    EXPECT_EQ(AnchorsOf(Walk()[0]), (Anchors{0, 0}));
  }
}

TEST_F(RubyTest, EachPlaceHasItsLine) {
  for (const auto& [pc, line] : std::vector<std::pair<int, int>>{
           {0, 10}, {1, 10}, {2, 10}, {3, 20}, {54, 20}, {55, 20}, {60, 20}, {61, 30}, {99, 30}, {101, 0}, {-1, 0}}) {
    stack_[1].pc = words_ + pc;
    EXPECT_EQ(Describe(Walk()[0])[0], "block in pay:" + std::to_string(line)) << pc;
  }
}

TEST_F(RubyTest, APathMayBeAnArrayAndATextMayLieElsewhere) {
  struct {
    uint64_t flags = 0x07 | 1 << 13, type = 0;
    const Text* path;
  } both{.path = &file_};
  const char* name = "a name that is so long that it does not lie in its object";
  struct {
    uint64_t flags = 0x05 | 1 << 13, type = 0, length;
    const char* characters;
  } longer{.length = strlen(name), .characters = name};
  pay_body_.path = &both;
  pay_body_.label = reinterpret_cast<const Text*>(&longer);
  const auto traces = Walk();
  EXPECT_EQ(traces[0].symbols[0].file, "/srv/shop.rb");
  EXPECT_EQ(traces[0].symbols[0].function, name);
}

TEST_F(RubyTest, OnlyTheThreadThatHasTheLockIsSaidToHaveIt) {
  EXPECT_EQ(Walk()[0].flags, 0);
  ractor_.running = &thread_;
  EXPECT_EQ(Walk()[0].flags, STACKD_MANAGED_HOLDS_GIL);
}

TEST_F(RubyTest, AThreadThatIsNoneOfRubysHasNoTrace) {
  thread_.context = nullptr;
  EXPECT_TRUE(Walk().empty());
  current_context = 16;
  EXPECT_TRUE(Walk().empty());
  current_context = 0;
  EXPECT_TRUE(Walk().empty());
}

TEST_F(RubyTest, AStackThatIsTooDeepIsSaidToBe) {
  std::vector<Frame> frames(10000, stack_[1]);
  context_.stack = context_.frame = frames.data();
  context_.stack_words = frames.size() * sizeof(Frame) / 8;
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_GT(traces[0].frames.size(), 1000u);
  EXPECT_EQ(traces[1].status, STACKD_WALK_LIMIT);
  context_.stack_words = ~0ull;
  EXPECT_TRUE(Walk()[0].frames.empty());
}

TEST_F(RubyTest, WhatCannotBeReadOrIsNoCodeEndsTheWalk) {
  for (int way = 0; way < 5; way++) {
    main_.flags = way == 0 ? 0x1a | 6 << 12 : 0x1a | 7 << 12;
    main_name_.flags = way == 1 ? 0x07 : 0x05 | 6 << 14;
    stack_[3].code = way == 2 ? reinterpret_cast<const Code*>(16) : &main_;
    main_.body = way == 3 ? reinterpret_cast<const Body*>(16) : &main_body_;
    main_body_.path = way == 4 ? reinterpret_cast<const void*>(16) : &file_;
    const auto traces = Walk();
    ASSERT_EQ(traces.size(), 2u) << way;
    EXPECT_EQ(Describe(traces[0]), (Lines{"block in pay:20", "--"})) << way;
    EXPECT_EQ(traces[1].status, way < 2 ? STACKD_WALK_BAD_LAYOUT : STACKD_WALK_UNREADABLE) << way;
  }
}

TEST(RubyLayout, AVersionThatNobodyKnowsHasNone) {
  EXPECT_NE(stackd_ruby_layout(3, 4), nullptr);
  for (uint32_t minor : {0u, 5u}) EXPECT_EQ(stackd_ruby_layout(3, minor), nullptr);
}

}  // namespace
}  // namespace stackd
