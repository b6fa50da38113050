extern "C" {
#include "agent/runtimes/hotspot/hotspot.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "daemon/ring/managed_record.h"
#include "daemon/ring/ring.h"

// This program exports what a libjvm does: the tables that describe a made-up VM, whose structures are not those of any
// release. It is built twice, the second time as release 8.
namespace {

struct FakeConstMethod {
  uint64_t unused;
  uint64_t constants;
  uint32_t size_words;
  uint16_t code_size;
  uint16_t more;
};
struct FakeMethod {
  uint64_t unused[2];
  FakeConstMethod* const_method;
};

#ifdef RELEASE_8
struct FakeSpace {
  uint64_t unused, low, high;
};
struct FakeHeap {
  uint64_t unused;
  FakeSpace memory;
};
FakeHeap heap;
FakeHeap* heap_pointer = &heap;
uint64_t &code_low = heap.memory.low, &code_high = heap.memory.high;
constexpr size_t kBytecode = 7;
#else
uint64_t code_low, code_high;
constexpr size_t kBytecode = 8;
#endif

struct Entry {
  const char* type;
  const char* field;
  const char* type_string;
  int32_t is_static;
  uint64_t offset;
  void* address;
};
struct TypeEntry {
  const char* type;
  uint64_t size;
};

Entry entries[] = {
    {"Other", "_constMethod", "", 0, 99, nullptr},
#ifdef RELEASE_8
    {"CodeCache", "_heap", "CodeHeap*", 1, 0, &heap_pointer},
    {"CodeHeap", "_memory", "VirtualSpace", 0, offsetof(FakeHeap, memory), nullptr},
    {"VirtualSpace", "_low", "char*", 0, offsetof(FakeSpace, low), nullptr},
    {"VirtualSpace", "_high", "char*", 0, offsetof(FakeSpace, high), nullptr},
#else
    {"CodeCache", "_low_bound", "address", 1, 0, &code_low},
    {"CodeCache", "_high_bound", "address", 1, 0, &code_high},
#endif
    {"Method", "_constMethod", "ConstMethod*", 0, offsetof(FakeMethod, const_method), nullptr},
    {"ConstMethod", "_constants", "ConstantPool*", 0, offsetof(FakeConstMethod, constants), nullptr},
    {"ConstMethod", "_constMethod_size", "int", 0, offsetof(FakeConstMethod, size_words), nullptr},
    {"ConstMethod", "_code_size", "u2", 0, offsetof(FakeConstMethod, code_size), nullptr},
    {nullptr, nullptr, nullptr, 0, 0, nullptr},
};
TypeEntry types[] = {{"Method", sizeof(FakeMethod)}, {"ConstMethod", 32}, {nullptr, 0}};

}  // namespace

extern "C" {
#define FAKE __attribute__((visibility("default"), used))
FAKE Entry* gHotSpotVMStructs = entries;
FAKE uint64_t gHotSpotVMStructEntryArrayStride = sizeof(Entry);
FAKE uint64_t gHotSpotVMStructEntryTypeNameOffset = offsetof(Entry, type);
FAKE uint64_t gHotSpotVMStructEntryFieldNameOffset = offsetof(Entry, field);
FAKE uint64_t gHotSpotVMStructEntryOffsetOffset = offsetof(Entry, offset);
FAKE uint64_t gHotSpotVMStructEntryAddressOffset = offsetof(Entry, address);
FAKE TypeEntry* gHotSpotVMTypes = types;
FAKE uint64_t gHotSpotVMTypeEntryArrayStride = sizeof(TypeEntry);
FAKE uint64_t gHotSpotVMTypeEntryTypeNameOffset = offsetof(TypeEntry, type);
FAKE uint64_t gHotSpotVMTypeEntrySizeOffset = offsetof(TypeEntry, size);
}

namespace {

// A method with `code_bytes` of bytecode, as the VM would have it.
struct Method {
  explicit Method(uint16_t code_bytes) {
    memset(memory, 0, sizeof(memory));
    auto* description = reinterpret_cast<FakeConstMethod*>(memory);
    description->constants = reinterpret_cast<uint64_t>(memory);
    description->size_words = sizeof(memory) / 8;
    description->code_size = code_bytes;
    method.const_method = description;
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(&method); }
  uint64_t code() const { return reinterpret_cast<uint64_t>(memory) + 32; }

  alignas(8) char memory[256];
  FakeMethod method = {};
};

struct Frame {
  uint64_t anchor, key;
  int64_t position;
  bool operator==(const Frame&) const = default;
};

class HotSpotWalkTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    stackd_loaded_objects(maps, stackd_hotspot_find);
    close(maps);
  }

  HotSpotWalkTest() {
    code_low = 0x7000'0000;
    code_high = 0x7100'0000;
  }

  uint64_t At(size_t index) const { return reinterpret_cast<uint64_t>(&stack_[index]); }

  // An interpreted frame whose frame pointer is word `index` of the stack.
  void PutFrame(size_t index, const Method& method, uint64_t bytecode) {
    stack_[index + 1] = 0x7000'1234;
    stack_[index] = 0x5a5a;
    stack_[index - 1] = At(index + 2);
    stack_[index - 3] = method.address();
    stack_[index - kBytecode] = bytecode;
  }

  // What is written to a ring, taken apart again.
  std::vector<Frame> Walk() {
    auto ring = stackd::Ring::Create(256u << 10);
    EXPECT_TRUE(ring.has_value());
    stackd_ring agent_ring;
    EXPECT_TRUE(stackd_ring_attach(&agent_ring, (*ring)->header(), (*ring)->size_bytes()));
    stackd_ring_writer record;
    auto* begin =
        static_cast<char*>(stackd_ring_begin(&record, &agent_ring, STACKD_RECORD_THREAD, sizeof(stackd_thread_record), 1));
    stackd_managed_thread thread = {};
    thread.pid = getpid();
    thread.regs = registers_;
    thread.stack_start = At(0);
    thread.stack_end = At(stack_.size());
    stackd_managed_writer writer = {};
    writer.ring = &record;
    writer.words_left = 200;  // what the first slot holds
    stackd_hotspot_walk(&writer, &thread);
    std::vector<Frame> frames;
    for (const auto& trace : stackd::ParseManaged({begin + sizeof(stackd_thread_record), 8ull * writer.words})) {
      EXPECT_EQ(trace.runtime, uint32_t{STACKD_RUNTIME_HOTSPOT});
      for (const auto& frame : trace.frames) frames.push_back({frame.anchor_avma, frame.key, frame.position});
    }
    return frames;
  }

  std::vector<uint64_t> stack_ = std::vector<uint64_t>(600);
  uint64_t registers_[STACKD_REGISTERS] = {};
};

using Frames = std::vector<Frame>;

TEST_F(HotSpotWalkTest, FindsInterpretedFramesWhereverTheyLie) {
  Method first(100), second(8);
  // The second lies across two of the pieces that the stack is read in.
  PutFrame(20, first, first.code() + 17);
  PutFrame(97, second, second.code());
  PutFrame(598, first, first.code() + 99);
  EXPECT_EQ(Walk(), (Frames{{At(20), first.address(), 17}, {At(97), second.address(), 0}, {At(598), first.address(), 99}}));
}

TEST_F(HotSpotWalkTest, FindsEachFrameOnce) {
  Method method(100);
  for (size_t index = 10; index < 600 - 2; index += 11) PutFrame(index, method, method.code() + index % 100);
  // 200 words hold the entry of the runtime and 49 frames.
  EXPECT_EQ(Walk().size(), 49u);
  stack_ = std::vector<uint64_t>(600);
  for (size_t index = 10; index < 400; index += 11) PutFrame(index, method, method.code() + index % 100);
  Frames expected;
  for (size_t index = 10; index < 400; index += 11) expected.push_back({At(index), method.address(), int64_t(index % 100)});
  EXPECT_EQ(Walk(), expected);
}

TEST_F(HotSpotWalkTest, TakesTheInnermostPlaceFromTheInterpretersRegister) {
  Method method(100);
  PutFrame(20, method, method.code() + 17);
  PutFrame(40, method, method.code() + 18);
  registers_[STACKD_REG_RBP] = At(20);
  registers_[13] = method.code() + 55;
  EXPECT_EQ(Walk(), (Frames{{At(20), method.address(), 55}, {At(40), method.address(), 18}}));
  // It is another's once the method has called something.
  registers_[13] = 0x1234;
  EXPECT_EQ(Walk(), (Frames{{At(20), method.address(), 17}, {At(40), method.address(), 18}}));
}

#ifdef RELEASE_8
TEST_F(HotSpotWalkTest, WhileItCollectsAFrameHoldsTheIndexOfItsBytecode) {
  Method method(100);
  PutFrame(20, method, 0);
  PutFrame(40, method, 99);
  PutFrame(60, method, 100);
  EXPECT_EQ(Walk(), (Frames{{At(20), method.address(), 0}, {At(40), method.address(), 99}}));
}

TEST_F(HotSpotWalkTest, WritesNothingBeforeTheVmHasAHeap) {
  Method method(100);
  PutFrame(20, method, method.code());
  heap_pointer = nullptr;
  EXPECT_TRUE(Walk().empty());
  heap_pointer = &heap;
  EXPECT_EQ(Walk().size(), 1u);
}
#endif

TEST_F(HotSpotWalkTest, ANativeMethodHasNoPlace) {
  Method method(0);
  PutFrame(20, method, 0xbad);
  EXPECT_EQ(Walk(), (Frames{{At(20), method.address(), -1}}));
}

TEST_F(HotSpotWalkTest, LeavesOutWhatIsNoFrame) {
  Method method(100);
  const auto is_none = [&](size_t index, uint64_t word) {
    PutFrame(20, method, method.code());
    stack_[index] = word;
    const bool none = Walk().empty();
    stack_ = std::vector<uint64_t>(600);
    return none;
  };
  PutFrame(20, method, method.code());
  ASSERT_EQ(Walk().size(), 1u);
  EXPECT_TRUE(is_none(21, 0x6fff'ffff)) << "returns to code that is not the VM's";
  EXPECT_TRUE(is_none(19, At(21))) << "its caller begins in it";
  EXPECT_TRUE(is_none(19, At(20) + 0x100000)) << "its caller begins far away";
  EXPECT_TRUE(is_none(20 - kBytecode, method.code() + 100)) << "is behind the method's code";
  EXPECT_TRUE(is_none(20 - kBytecode, method.code() - 1)) << "is before the method's code";
  EXPECT_TRUE(is_none(17, 0x1000)) << "its method cannot be read";
  EXPECT_TRUE(is_none(17, method.address() + 1));
  EXPECT_TRUE(is_none(17, At(100))) << "its method lies on the stack";
  EXPECT_TRUE(is_none(17, ~uint64_t{7}));
}

TEST_F(HotSpotWalkTest, WritesNothingForAThreadWithoutJava) { EXPECT_TRUE(Walk().empty()); }

TEST_F(HotSpotWalkTest, WritesNothingBeforeTheVmHasCode) {
  Method method(100);
  PutFrame(20, method, method.code());
  code_low = code_high = 0;
  EXPECT_TRUE(Walk().empty());
}

}  // namespace
