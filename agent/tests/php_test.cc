// The walk over PHP's frames, on structures as 8.2 has them, sound and otherwise. (That the offsets are right, and what
// real interpreters look like, is tests/e2e/php_test.py.)
extern "C" {
#include "agent/runtimes/php/php.h"

#include "agent/runtimes/php/php_layout.h"
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
#include "stackd/php_trace.h"

namespace {

constexpr uint32_t kTop = 1u << 17;  // ZEND_CALL_TOP

struct Text {
  explicit Text(const char* text) : length(strlen(text)) { strcpy(characters, text); }
  uint64_t others[2] = {};
  uint64_t length;
  char characters[40] = {};
};
static_assert(offsetof(Text, characters) == 24);

struct Opcode {
  uint64_t others[3] = {};
  uint32_t line = 0;
  uint32_t more = 0;
};
static_assert(sizeof(Opcode) == 32 && offsetof(Opcode, line) == 24);

struct Class {
  uint64_t type = 2;
  const Text* name = nullptr;
};

struct Function {
  uint8_t type = 2;
  uint8_t pad[3] = {};
  uint32_t flags = 0;
  const Text* name = nullptr;
  const Class* scope = nullptr;
  uint64_t others[7] = {};
  uint32_t code_count = 0;
  uint32_t more = 0;
  const Opcode* code = nullptr;
  uint64_t rest[7] = {};
  const Text* file = nullptr;
  uint64_t end[2] = {};
};
static_assert(offsetof(Function, code_count) == 80 && offsetof(Function, code) == 88 && offsetof(Function, file) == 152);

struct Frame {
  const Opcode* opcode = nullptr;
  uint64_t others[2] = {};
  const Function* function = nullptr;
  uint64_t object = 0;
  uint32_t flags = 0;
  uint32_t count = 0;
  const Frame* previous = nullptr;
};
static_assert(offsetof(Frame, flags) == 40 && sizeof(Frame) == 56);

struct Module {
  uint16_t size = 168;
  uint32_t api = 0;
  uint8_t is_debug = 0, is_thread_safe = 0;
  uint64_t others[2] = {};
  const char* name = nullptr;
  uint64_t functions[6] = {};
  const char* version = nullptr;
};
static_assert(offsetof(Module, name) == 32 && offsetof(Module, version) == 88);

struct Bucket {
  const Module* module = nullptr;
  uint64_t others[3] = {};
};

struct Registry {
  uint64_t others[2] = {};
  const Bucket* buckets = nullptr;
  uint32_t used = 0;
};

}  // namespace

// What a PHP exports.
extern "C" {
struct {
  uint64_t others[61];
  const Frame* current;
} executor_globals = {};
Registry module_registry = {};
void execute_ex() {}
}
static_assert(offsetof(decltype(executor_globals), current) == 488);

namespace stackd {
namespace {

using Lines = std::vector<std::string>;

class PhpTest : public testing::Test {
 protected:
  // Its registry is empty at first, as that of a PHP that starts.
  static void SetUpTestSuite() {
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    stackd_managed_find_runtimes(maps);
    EXPECT_TRUE(stackd_managed_is_unsettled());
    static Module core, standard;
    core.name = "Core";
    core.version = "4.2.36";
    standard.name = "standard";
    standard.version = "8.2.36-1+deb12u1";
    core.api = standard.api = 20220829;
    static Bucket buckets[] = {{&core}, {&standard}};
    module_registry.buckets = buckets;
    module_registry.used = 2;
    stackd_managed_find_runtimes(maps);
    EXPECT_FALSE(stackd_managed_is_unsettled());
    EXPECT_FALSE(stackd_runtimes_need_memory());
    close(maps);
  }

  PhpTest() : ring_(std::move(*Ring::Create(1u << 20))) {
    EXPECT_TRUE(stackd_ring_attach(&agent_ring_, ring_->header(), ring_->size_bytes()));
    for (uint32_t i = 0; i < 4; i++) code_[i].line = 10 + i;
    shop_.name = &shop_name_;
    for (Function* function : {&pay_, &main_}) {
      function->code = code_;
      function->code_count = 4;
      function->file = &file_;
    }
    pay_.name = &pay_name_;
    pay_.scope = &shop_;
    sleep_.type = 1;
    sleep_.name = &sleep_name_;
    // sleep() was called by pay, that by C code, which the file's own code called.
    sleeps_.function = &sleep_;
    sleeps_.previous = &pays_;
    pays_ = {.opcode = &code_[2], .function = &pay_, .flags = kTop, .previous = &marks_};
    marks_.flags = kTop;
    marks_.previous = &runs_;
    runs_ = {.opcode = &code_[1], .function = &main_, .flags = kTop};
    executor_globals.current = &sleeps_;
  }
  ~PhpTest() override { executor_globals.current = nullptr; }

  std::vector<ManagedTrace> Walk() { return WalkThread(0x1000, 1, &agent_ring_, ring_.get()); }

  static Lines Describe(const ManagedTrace& trace) {
    Lines lines;
    for (const ManagedTraceFrame& frame : trace.frames) {
      const auto symbol = std::ranges::find(trace.symbols, frame.key, &ManagedSymbol::key);
      const std::string name =
          symbol == trace.symbols.end() ? "?" : std::string(symbol->table) + "." + std::string(symbol->function);
      lines.push_back((frame.flags & STACKD_MANAGED_BOUNDARY) != 0 ? "--" : name + ":" + std::to_string(frame.position));
    }
    return lines;
  }

  std::unique_ptr<Ring> ring_;
  stackd_ring agent_ring_;
  Opcode code_[4];
  Text file_{"/srv/shop.php"}, shop_name_{"Shop"}, pay_name_{"pay"}, sleep_name_{"sleep"};
  Class shop_;
  Function sleep_, pay_, main_;
  Frame sleeps_, pays_, marks_, runs_;
};

TEST_F(PhpTest, FramesAreWrittenInnermostFirstWithNamesLinesAndWhereTheirCallEnds) {
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].runtime, STACKD_RUNTIME_PHP);
  EXPECT_EQ(traces[0].version, 80236u);
  EXPECT_EQ(traces[0].status, STACKD_WALK_WHOLE);
  EXPECT_EQ(Describe(traces[0]), (Lines{".sleep:0", "Shop.pay:12", "--", ".:11", "--"}));
  EXPECT_EQ(traces[0].symbols[1].file, "/srv/shop.php");
  EXPECT_EQ(traces[0].symbols[2].table_format, static_cast<uint32_t>(STACKD_PHP_MAIN));
}

TEST_F(PhpTest, AFileThatIsIncludedAndATextThatIsEvaluatedAreToldFromTheFileThatWasRun) {
  main_.name = nullptr;
  runs_.flags = 0;
  EXPECT_EQ(Walk()[0].symbols[2].table_format, static_cast<uint32_t>(STACKD_PHP_INCLUDED));
  main_.type = 4;
  EXPECT_EQ(Walk()[0].symbols[2].table_format, static_cast<uint32_t>(STACKD_PHP_EVALUATED));
}

TEST_F(PhpTest, WhereNothingRunsThereAreNoFrames) {
  executor_globals.current = nullptr;
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_TRUE(traces[0].frames.empty());
  EXPECT_EQ(traces[0].status, STACKD_WALK_WHOLE);
}

TEST_F(PhpTest, APlaceThatIsNotInTheCodeOfTheFunctionHasNoLine) {
  const Opcode* const none = nullptr;
  const Opcode* const first = code_;
  for (const Opcode* opcode : {first + 4, first - 1, reinterpret_cast<const Opcode*>(1), none}) {
    pays_.opcode = opcode;
    EXPECT_EQ(Describe(Walk()[0])[1], "Shop.pay:0");
  }
}

TEST_F(PhpTest, FramesThatEndNowhereEndAndAreSaidToBeTooMany) {
  runs_.previous = &sleeps_;
  const auto traces = Walk();
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_GT(traces[0].frames.size(), 1000u);
  EXPECT_EQ(traces[1].status, STACKD_WALK_LIMIT);
  marks_.previous = &marks_;
  EXPECT_EQ(Walk()[1].status, STACKD_WALK_LIMIT);
}

TEST_F(PhpTest, WhatCannotBeReadEndsTheWalk) {
  for (int way = 0; way < 4; way++) {
    pays_.function = way == 0 ? reinterpret_cast<const Function*>(16) : &pay_;
    sleeps_.previous = way == 1 ? reinterpret_cast<const Frame*>(16) : &pays_;
    pay_.name = way == 2 ? reinterpret_cast<const Text*>(16) : &pay_name_;
    pay_.scope = way == 3 ? reinterpret_cast<const Class*>(16) : &shop_;
    const auto traces = Walk();
    ASSERT_EQ(traces.size(), 2u) << way;
    EXPECT_EQ(Describe(traces[0]), (Lines{".sleep:0"})) << way;
    EXPECT_EQ(traces[1].status, STACKD_WALK_UNREADABLE);
  }
}

TEST_F(PhpTest, WhatIsNoFunctionEndsTheWalk) {
  for (int way = 0; way < 3; way++) {
    pay_.type = way == 0 ? 3 : 2;
    pay_name_.length = way == 1 ? ~0ull : 3;
    pay_.code_count = way == 2 ? ~0u : 4;
    const auto traces = Walk();
    ASSERT_EQ(traces.size(), 2u) << way;
    EXPECT_EQ(Describe(traces[0]), (Lines{".sleep:0"})) << way;
    EXPECT_EQ(traces[1].status, STACKD_WALK_BAD_LAYOUT);
  }
}

TEST(PhpLayout, AVersionThatNobodyKnowsHasNone) {
  EXPECT_NE(stackd_php_layout(20240924), nullptr);
  for (uint32_t api : {0u, 20180731u, 20200930u, 20260924u, ~0u}) EXPECT_EQ(stackd_php_layout(api), nullptr);
}

}  // namespace
}  // namespace stackd
