#include "daemon/managed/hotspot/java_frames.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "daemon/managed/hotspot/code_cache.h"
#include "daemon/managed/hotspot/methods.h"

namespace stackd::hotspot {
namespace {

// A made-up VM in this process's memory, whose structures are those of no release: the layout says where things are.
struct FakeSymbol {
  uint16_t length;
  char body[62];
};
struct FakeKlass {
  FakeSymbol* name;
};
struct FakePool {
  FakeKlass* holder;
  int32_t length;
  uint16_t source_file;
  FakeSymbol* entries[4];
};
struct FakeConstMethod {
  FakePool* constants;
  uint16_t flags, code_size, name_index;
  uint8_t code[40];
};
struct FakeMethod {
  FakeConstMethod* const_method;
};
struct FakeSpace {
  uint64_t low, high;
};
struct FakeHeap {
  FakeSpace memory, segments;
  int32_t log2_segment_size;
};
struct FakeList {
  uint32_t length;
  FakeHeap** data;
};
struct FakeBlock {
  uint64_t used;
};
struct FakeBlob {
  const char* name;
  int32_t size, frame_size, frame_complete;
  uint64_t code_begin, method, scopes_data, deopt_handler;
  int32_t scopes_pcs, dependencies, metadata, orig_pc;
};
constexpr uint32_t kSegmentBytes = 256;
constexpr uint32_t kSegments = 16;
constexpr uint32_t kCodeOffset = 160;  // of a blob

FakeSymbol Symbol(const char* text) {
  FakeSymbol symbol = {};
  symbol.length = static_cast<uint16_t>(strlen(text));
  memcpy(symbol.body, text, symbol.length);
  return symbol;
}

class JavaFramesTest : public testing::Test {
 protected:
  JavaFramesTest() {
    Fd own(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(files_.SetMemory(&own));
    pool_ = {&klass_, 4, 3, {nullptr, &outer_name_, &inner_name_, &file_name_}};
    outer_code_ = {&pool_, 1, 20, 1, {}};
    // Behind 20 bytes of bytecode: lines 10 from 0, 11 from 5, 300 from 9.
    const uint8_t lines[] = {0xff, 0, 20, 5 << 3 | 1, 0xff, 8, 194, 6, 0};
    memcpy(outer_code_.code + 20, lines, sizeof(lines));
    inner_code_ = {&pool_, 0, 20, 2, {}};
    memset(segments_, 0xff, sizeof(segments_));
    heap_ = {{At(code_), At(code_) + sizeof(code_)}, {At(segments_), At(segments_) + sizeof(segments_)}, 8};
    low_ = At(code_);
    high_ = low_ + sizeof(code_);
    FillLayout();
  }

  template <typename T>
  static uint64_t At(const T& object) {
    return reinterpret_cast<uint64_t>(&object);
  }

  void FillLayout() {
    memset(static_cast<void*>(&layout_), 0xff, offsetof(Layout, zgc));
    layout_.release = 17;
    layout_.method_const_method = offsetof(FakeMethod, const_method);
    layout_.const_method_constants = offsetof(FakeConstMethod, constants);
    layout_.const_method_flags = offsetof(FakeConstMethod, flags);
    layout_.const_method_code_size = offsetof(FakeConstMethod, code_size);
    layout_.const_method_name_index = offsetof(FakeConstMethod, name_index);
    layout_.const_method_bytes = offsetof(FakeConstMethod, code);
    layout_.has_line_table_flag = 1;
    layout_.constants_holder = offsetof(FakePool, holder);
    layout_.constants_length = offsetof(FakePool, length);
    layout_.constants_source_file = offsetof(FakePool, source_file);
    layout_.constants_bytes = offsetof(FakePool, entries);
    layout_.klass_name = offsetof(FakeKlass, name);
    layout_.symbol_length = offsetof(FakeSymbol, length);
    layout_.symbol_body = offsetof(FakeSymbol, body);
    layout_.code_heaps_avma = At(list_pointer_);
    layout_.code_low_avma = At(low_);
    layout_.code_high_avma = At(high_);
    layout_.list_length = offsetof(FakeList, length);
    layout_.list_data = offsetof(FakeList, data);
    layout_.heap_memory = offsetof(FakeHeap, memory);
    layout_.heap_segments = offsetof(FakeHeap, segments);
    layout_.heap_log2_segment_size = offsetof(FakeHeap, log2_segment_size);
    layout_.space_low = offsetof(FakeSpace, low);
    layout_.space_high = offsetof(FakeSpace, high);
    layout_.block_used = offsetof(FakeBlock, used);
    layout_.block_bytes = sizeof(FakeBlock);
    layout_.blob_name = offsetof(FakeBlob, name);
    layout_.blob_size = offsetof(FakeBlob, size);
    layout_.blob_frame_size = offsetof(FakeBlob, frame_size);
    layout_.blob_frame_complete = offsetof(FakeBlob, frame_complete);
    layout_.blob_frame_complete_bytes = 4;
    layout_.blob_code_begin = offsetof(FakeBlob, code_begin);
    layout_.nmethod_method = offsetof(FakeBlob, method);
    layout_.nmethod_scopes_pcs_offset = offsetof(FakeBlob, scopes_pcs);
    layout_.nmethod_dependencies_offset = offsetof(FakeBlob, dependencies);
    layout_.nmethod_metadata_offset = offsetof(FakeBlob, metadata);
    layout_.nmethod_scopes_data_begin = offsetof(FakeBlob, scopes_data);
    layout_.nmethod_orig_pc_offset = offsetof(FakeBlob, orig_pc);
    layout_.nmethod_deopt_handler_begin = offsetof(FakeBlob, deopt_handler);
    layout_.call_stub_return_avma = At(call_stub_return_);
  }

  // Two segments of code from `segment` on. Returns where its code begins: 300 bytes.
  uint64_t PutBlob(uint32_t segment, const char* name, int32_t frame_words, const FakeMethod* method = nullptr) {
    segments_[segment] = 0;
    segments_[segment + 1] = 1;
    uint8_t* block = code_ + segment * kSegmentBytes;
    reinterpret_cast<FakeBlock*>(block)->used = 1;
    auto* blob = reinterpret_cast<FakeBlob*>(block + sizeof(FakeBlock));
    *blob = {};
    blob->name = name;
    blob->size = 2 * kSegmentBytes - sizeof(FakeBlock);
    blob->frame_size = frame_words;
    blob->frame_complete = 16;
    blob->code_begin = At(*blob) + kCodeOffset;
    blob->method = method == nullptr ? 0 : At(*method);
    // Two places: at 0x40 the method alone, at 0x50 another inlined into it.
    blob->scopes_pcs = At(pcs_) - At(*blob);
    blob->dependencies = blob->scopes_pcs + sizeof(pcs_);
    blob->metadata = At(metadata_) - At(*blob);
    blob->scopes_data = At(scopes_);
    return blob->code_begin;
  }
  FakeBlob* BlobOf(uint64_t code_avma) { return reinterpret_cast<FakeBlob*>(code_avma - kCodeOffset); }

  uint64_t Slot(size_t index) const { return reinterpret_cast<uint64_t>(words_.data()) + 8 * index; }
  StackCopy Stack() const { return StackCopy(Slot(0), static_cast<uint32_t>(words_.size()), {~uint64_t{0}}, words_); }

  // Asks for one frame, and what runs in it: "function:line", innermost first.
  std::optional<JitFrame> Ask(uint64_t pc_avma, size_t sp_slot, uint64_t rbp, JavaFrames::Thread thread = {}) {
    if (!frames_) Open(thread);
    return frames_->FrameAt(pc_avma, Slot(sp_slot), rbp, Stack());
  }
  void Open(JavaFrames::Thread thread = {}) {
    memory_.emplace(files_);
    auto cache = CodeCache::Open(&*memory_, layout_);
    ASSERT_TRUE(cache.has_value());
    code_cache_ = std::make_unique<CodeCache>(std::move(*cache));
    methods_.emplace(&*memory_, layout_);
    frames_.emplace(&*memory_, layout_, &*code_cache_, &*methods_, &limits_, thread);
  }
  // Functions of a stack that has this one frame.
  std::vector<std::string> Functions(const JitFrame& frame) {
    NativeStack native;
    native.frames = {{frame.pc_avma, frame.cfa_avma, FrameOrigin::kRegisters}};
    native.end = StackEnd::kRoot;
    ManagedThread thread;
    frames_->Collect(native, &thread);
    std::vector<std::string> functions;
    for (const ManagedStack& stack : thread.stacks) {
      for (const ManagedFrame& one : stack.frames) {
        functions.push_back(one.function.str() + ":" + std::to_string(one.line) + (one.inlined ? " inlined" : ""));
      }
    }
    return functions;
  }

  ProcessFiles files_;
  FakeSymbol class_name_ = Symbol("shop/Order$$Lambda+0x00007f3c8c001c40"), outer_name_ = Symbol("total"),
             inner_name_ = Symbol("price"), file_name_ = Symbol("Order.java");
  FakeKlass klass_ = {&class_name_};
  FakePool pool_;
  FakeConstMethod outer_code_, inner_code_;
  FakeMethod outer_ = {&outer_code_}, inner_ = {&inner_code_};
  alignas(8) uint8_t code_[kSegments * kSegmentBytes] = {};
  uint8_t segments_[kSegments];
  FakeHeap heap_;
  FakeHeap* heap_pointer_ = &heap_;
  FakeList list_ = {1, &heap_pointer_};
  FakeList* list_pointer_ = &list_;
  uint64_t low_, high_, call_stub_return_ = 1;
  int32_t pcs_[4][4] = {{-1, 0, 0, 0}, {0x40, 1, 0, 0}, {0x50, 4, 0, 0}, {0x7fffffff, 0, 0, 0}};
  // Sender, method (from 1), place + 1. At 1: total at 9. At 4: price at 3, called by what is at 1.
  uint8_t scopes_[8] = {0, 0, 1, 10, 1, 2, 4, 0};
  uint64_t metadata_[2] = {At(outer_), At(inner_)};
  Layout layout_;
  std::vector<uint64_t> words_ = std::vector<uint64_t>(64);
  std::optional<ProcessMemory> memory_;
  std::unique_ptr<CodeCache> code_cache_;
  std::optional<Methods> methods_;
  FrameLimits limits_ = {.deadline_ns = INT64_MAX};
  std::optional<JavaFrames> frames_;
};

using Names = std::vector<std::string>;

TEST_F(JavaFramesTest, ACompiledFrameHasTheSizeThatItsMethodSays) {
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  words_[4] = 0x1234;  // saved rbp
  words_[5] = code + 0x100;
  const auto frame = Ask(code + 0x40, 0, 0xbad, {.rsp = Slot(0)});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->cfa_avma, Slot(6));
  EXPECT_EQ(frame->caller_rbp, 0x1234u);
  EXPECT_EQ(Functions(*frame), (Names{"shop.Order$$Lambda.total:300"}));
}

TEST_F(JavaFramesTest, MethodsThatWereInlinedAreShownWithTheirCallers) {
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  words_[5] = code + 0x100;
  // Interrupted: the next place that is described is that at 0x50.
  const auto frame = Ask(code + 0x47, 0, 0, {.rsp = Slot(0)});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Functions(*frame), (Names{"shop.Order$$Lambda.price:0 inlined", "shop.Order$$Lambda.total:300"}));
}

TEST_F(JavaFramesTest, Release8HasOneHeapAndDescribesInlinedMethodsInTheMethodItself) {
  layout_.release = 8;
  layout_.code_heap_avma = At(heap_pointer_);
  layout_.code_heaps_avma = layout_.code_low_avma = layout_.code_high_avma = kNone;
  layout_.nmethod_scopes_data_begin = kNone;
  layout_.nmethod_scopes_data_offset = offsetof(FakeBlob, scopes_data);
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  BlobOf(code)->scopes_data = At(scopes_) - At(*BlobOf(code));
  words_[5] = code + 0x100;
  const auto frame = Ask(code + 0x47, 0, 0, {.rsp = Slot(0)});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Functions(*frame), (Names{"shop.Order$$Lambda.price:0 inlined", "shop.Order$$Lambda.total:300"}));
}

TEST_F(JavaFramesTest, AtItsBeginAndEndAMethodHasNoWholeFrame) {
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  auto* bytes = reinterpret_cast<uint8_t*>(code);
  bytes[0] = 0x55;     // push %rbp
  bytes[1] = 0x48;     // sub $32, %rsp
  bytes[0x60] = 0x5d;  // pop %rbp
  bytes[0x61] = 0xc3;  // ret
  words_[0] = 0x77;
  words_[1] = code + 0x100;
  EXPECT_EQ(Ask(code + 1, 0, 0xbad)->cfa_avma, Slot(2)) << "rbp is pushed";
  EXPECT_EQ(Ask(code + 1, 0, 0xbad)->caller_rbp, 0x77u);
  EXPECT_EQ(Ask(code + 0x60, 0, 0xbad)->cfa_avma, Slot(2)) << "all but rbp is popped";
  EXPECT_EQ(Ask(code, 1, 0x88)->cfa_avma, Slot(2)) << "nothing is pushed";
  EXPECT_EQ(Ask(code, 1, 0x88)->caller_rbp, 0x88u);
  EXPECT_EQ(Ask(code + 0x61, 1, 0x88)->cfa_avma, Slot(2)) << "all is popped";
}

TEST_F(JavaFramesTest, AMethodThatIsGivenUpIsNamedByWhereItWas) {
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  BlobOf(code)->deopt_handler = code + 0x90;
  BlobOf(code)->orig_pc = 16;
  words_[2] = code + 0x50;
  words_[5] = code + 0x100;
  const auto frame = Ask(code + 0x90, 0, 0, {.rsp = Slot(0)});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Functions(*frame).front(), "shop.Order$$Lambda.price:0 inlined");
}

TEST_F(JavaFramesTest, AnInterpretedFrameIsWhatItsThreadSaidOfIt) {
  const uint64_t interpreter = PutBlob(4, "Interpreter", 0);
  ManagedTrace trace;
  trace.frames = {{.anchor_avma = Slot(10), .key = At(outer_), .position = 6}};
  words_[9] = Slot(12);
  words_[10] = 0x1234;
  words_[11] = interpreter + 0x20;
  const auto frame = Ask(interpreter + 0x10, 1, Slot(10), {.rsp = Slot(1), .trace = &trace});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->cfa_avma, Slot(12));
  EXPECT_EQ(frame->caller_rbp, 0x1234u);
  EXPECT_EQ(Functions(*frame), (Names{"shop.Order$$Lambda.total:11"}));
}

TEST_F(JavaFramesTest, AnInterpretedFrameWithoutAWordIsShownWithoutAName) {
  const uint64_t interpreter = PutBlob(4, "Interpreter", 0);
  ManagedTrace trace;
  // No such place in the method.
  trace.frames = {{.anchor_avma = Slot(10), .key = At(outer_), .position = 20}};
  words_[9] = Slot(12);
  words_[11] = interpreter + 0x20;
  const auto frame = Ask(interpreter + 0x10, 1, Slot(10), {.rsp = Slot(1), .trace = &trace});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Functions(*frame), (Names{"(interpreted Java method without a name):0"}));
}

TEST_F(JavaFramesTest, WhatIsThereNowNamesAFrameOnlyOfAThreadThatHasNotSaidAll) {
  const uint64_t interpreter = PutBlob(4, "Interpreter", 0);
  words_[2] = At(outer_code_) + offsetof(FakeConstMethod, code) + 6;
  words_[7] = At(outer_);
  words_[9] = Slot(12);
  words_[11] = interpreter + 0x20;
  const ManagedTrace of_others;
  for (const auto& [thread, function] : {
           std::pair{JavaFrames::Thread{.rsp = Slot(1)}, "shop.Order$$Lambda.total:11"},
           std::pair{JavaFrames::Thread{.rsp = Slot(1), .trace = &of_others}, "shop.Order$$Lambda.total:11"},
           std::pair{JavaFrames::Thread{.rsp = Slot(1), .trace = &of_others, .is_trace_whole = true},
                     "(interpreted Java method without a name):0"},
       }) {
    Open(thread);
    EXPECT_EQ(Functions(*Ask(interpreter + 0x10, 1, Slot(10))), (Names{function}));
  }
}

TEST_F(JavaFramesTest, Release8KeepsTheIndexOfTheBytecodeWhileItCollects) {
  layout_.release = 8;
  const uint64_t interpreter = PutBlob(4, "Interpreter", 0);
  words_[3] = 9;
  words_[7] = At(outer_);
  words_[9] = Slot(12);
  words_[11] = interpreter + 0x20;
  EXPECT_EQ(Functions(*Ask(interpreter + 0x10, 1, Slot(10), {.rsp = Slot(1)})), (Names{"shop.Order$$Lambda.total:300"}));
}

TEST_F(JavaFramesTest, TheCompiledCallerOfAnInterpretedMethodBeginsBehindTheArguments) {
  const uint64_t interpreter = PutBlob(4, "Interpreter", 0);
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  words_[9] = Slot(15);
  words_[11] = code + 0x40;
  words_[20] = code + 0x50;
  ASSERT_EQ(Ask(interpreter + 0x10, 1, Slot(10), {.rsp = Slot(1)})->cfa_avma, Slot(12));
  const auto caller = Ask(code + 0x40, 12, 0);
  ASSERT_TRUE(caller.has_value());
  EXPECT_EQ(caller->cfa_avma, Slot(21));
}

TEST_F(JavaFramesTest, AMethodThatIsBeingEnteredInTheInterpreterHasNoFrameYet) {
  const uint64_t interpreter = PutBlob(4, "Interpreter", 0);
  words_[1] = interpreter + 0x30;
  const auto frame = Ask(interpreter + 0x10, 1, Slot(10), {.rsp = Slot(1)});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->cfa_avma, Slot(2));
  EXPECT_EQ(frame->caller_rbp, Slot(10));
}

TEST_F(JavaFramesTest, CodeThatIsNotTheVmsIsNobodysFrame) {
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  words_[5] = code + 0x100;
  EXPECT_FALSE(Ask(At(code_) + 8 * kSegmentBytes, 0, 0).has_value()) << "a free segment";
  EXPECT_FALSE(Ask(At(code_) - 1, 0, 0).has_value());
  EXPECT_FALSE(Ask(code - 1, 0, 0).has_value()) << "before the code of the method";
}

TEST_F(JavaFramesTest, WhereNothingSaysHowBigAFrameIsOnlyWhatIsBehindACallIsAReturnAddress) {
  const uint64_t stub = PutBlob(2, "StubRoutines", 0);
  const uint64_t code = PutBlob(4, "nmethod", 6, &outer_);
  reinterpret_cast<uint8_t*>(code)[0x3b] = 0xe8;  // call
  reinterpret_cast<uint8_t*>(code)[0x5d] = 0xff;  // call *0x8(%rbx)
  reinterpret_cast<uint8_t*>(code)[0x5e] = 0x53;
  words_[2] = code + 0x50;
  words_[4] = At(code_) + 9 * kSegmentBytes;
  words_[5] = code + 0x40;
  words_[6] = code + 0x60;
  EXPECT_EQ(Ask(stub + 0x20, 0, 0, {.rsp = Slot(0)})->cfa_avma, Slot(6));
  EXPECT_EQ(Ask(stub + 0x20, 6, 0)->cfa_avma, Slot(7));
  EXPECT_FALSE(Ask(stub + 0x20, 7, 0).has_value());
  // Nor in the middle of a method whose caller is not where it should be.
  words_[10] = code + 0x50;
  EXPECT_FALSE(Ask(code + 0x40, 10, 0).has_value());
}

TEST_F(JavaFramesTest, WhatFramesTakeIsBounded) {
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  words_[5] = code + 0x100;
  limits_.left_bytes = 10;
  const auto frame = Ask(code + 0x40, 0, 0, {.rsp = Slot(0)});
  ASSERT_TRUE(frame.has_value());
  EXPECT_TRUE(limits_.is_full);
  EXPECT_EQ(Functions(*frame), Names{});
  limits_.deadline_ns = 0;
  EXPECT_FALSE(Ask(code + 0x40, 0, 0).has_value());
  EXPECT_TRUE(limits_.is_late);
}

TEST_F(JavaFramesTest, ACorruptCodeCacheIsSurvived) {
  const uint64_t code = PutBlob(2, "nmethod", 6, &outer_);
  words_[5] = code + 0x100;
  // Segments that lead before the first; a scope that calls itself; places that are none.
  segments_[3] = 200;
  EXPECT_FALSE(Ask(At(code_) + 3 * kSegmentBytes, 0, 0).has_value());
  segments_[3] = 1;
  frames_.reset();
  scopes_[1] = 4;
  pcs_[2][1] = 0x7ffffff0;
  const auto frame = Ask(code + 0x50, 0, 0, {.rsp = Slot(0)});
  ASSERT_TRUE(frame.has_value());
  frames_.reset();
  BlobOf(code)->dependencies = 0x7fffffff;
  metadata_[0] = 0x10;
  ASSERT_TRUE(Ask(code + 0x40, 0, 0, {.rsp = Slot(0)}).has_value());
}

}  // namespace
}  // namespace stackd::hotspot
