// Code objects have numbers of their own from CPython 3.12 on. Before, one that took another's place may be the same in
// each of its words. So what one thread has read of it is never told to another. (The walk itself is cpython_test.cc.)
extern "C" {
#include "agent/runtimes/cpython/cpython.h"
#include "agent/runtimes/cpython/cpython_layout.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "agent/tests/walk_thread.h"
#include "daemon/ring/ring_reader.h"

// What an interpreter exports.
extern "C" {
uint64_t _PyRuntime[256] = {};
unsigned long Py_Version = 0;
char PyCode_Type[8] = {};
char PyUnicode_Type[8] = {};
char PyBytes_Type[8] = {};
}

namespace stackd {
namespace {

constexpr uint64_t kThreads[] = {0x1000, 0x2000};

// A structure of the interpreter, whose fields are where the layout of the version has them.
class Structure {
 public:
  void Set(uint32_t offset, uint64_t value) { memcpy(bytes_ + offset, &value, sizeof(value)); }
  void SetInt(uint32_t offset, int32_t value) { memcpy(bytes_ + offset, &value, sizeof(value)); }
  void SetPointer(uint32_t offset, const void* to) { Set(offset, reinterpret_cast<uint64_t>(to)); }
  void SetText(uint32_t offset, const char* text) { strcpy(bytes_ + offset, text); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes_); }
  const void* get() const { return bytes_; }

 private:
  alignas(16) char bytes_[512] = {};
};

// Two threads in one function.
class Interpreter {
 public:
  explicit Interpreter(const struct stackd_cpython_layout& layout) : layout_(layout) {
    code_.SetPointer(8, PyCode_Type);
    MakeText(&name_, "Shop.pay");
    MakeText(&file_, "/srv/shop.py");
    lines_.SetPointer(8, PyBytes_Type);
    lines_.Set(layout.bytes_size, 4);
    code_.SetPointer(layout.code_name, name_.get());
    code_.SetPointer(layout.code_file, file_.get());
    code_.SetInt(layout.code_first_line, 12);
    code_.SetPointer(layout.code_lines, lines_.get());

    frame_.SetPointer(layout.frame_code, code_.get());
    if (layout.code_instructions != 0) {
      frame_.Set(layout.frame_position, code_.address() + layout.code_instructions + 8);
      frame_.SetInt(layout.frame_entry, 1);
    }
    const Structure* innermost = &frame_;
    if (layout.frames == STACKD_CPYTHON_ENTRY_FLAG) {
      calls_.SetPointer(layout.cframe_frame, frame_.get());
      innermost = &calls_;
    }
    for (size_t i = 0; i < std::size(kThreads); i++) {
      states_[i].SetPointer(layout.thread_interpreter, interpreter_.get());
      states_[i].Set(layout.thread_id, kThreads[i]);
      states_[i].SetPointer(layout.thread_frame, innermost->get());
    }
    states_[0].SetPointer(layout.thread_next, states_[1].get());
    states_[1].SetPointer(layout.thread_previous, states_[0].get());
    interpreter_.SetPointer(layout.interpreter_threads, states_[0].get());
    _PyRuntime[layout.runtime_interpreters / 8] = interpreter_.address();
  }

  // As when the function is gone, and the next one, its code and its name came to lie where the old ones were.
  void PutAnotherInItsPlace() { name_.SetText(layout_.text_ascii_bytes, "Shop.lie"); }

 private:
  void MakeText(Structure* text, const char* characters) {
    text->SetPointer(8, PyUnicode_Type);
    text->Set(layout_.text_length, strlen(characters));
    text->SetInt(layout_.text_state, 1 << 2 | 1 << 5 | 1 << 6);  // 1 byte each, compact, ASCII
    text->SetText(layout_.text_ascii_bytes, characters);
  }

  const struct stackd_cpython_layout& layout_;
  Structure interpreter_, states_[std::size(kThreads)], calls_, frame_, code_, name_, file_, lines_;
};

class Agent {
 public:
  Agent() : ring_(std::move(*Ring::Create(1u << 20))) {
    EXPECT_TRUE(stackd_ring_attach(&agent_ring_, ring_->header(), ring_->size_bytes()));
  }

  // The innermost function of the thread, as the daemon reads it.
  std::string FunctionOf(uint64_t thread_self) {
    const std::vector<ManagedTrace> traces = WalkThread(thread_self, now_ns_, &agent_ring_, ring_.get());
    if (traces.size() != 1) return "not one trace";
    const ManagedTrace& trace = traces[0];
    if (trace.status != STACKD_WALK_WHOLE || trace.version != Py_Version) return "a trace that is not whole";
    return trace.symbols.size() == 1 ? std::string(trace.symbols[0].function) : "not one function";
  }

 private:
  std::unique_ptr<Ring> ring_;
  stackd_ring agent_ring_;
  // One dump: no time passes between the threads.
  const uint64_t now_ns_ = stackd_clock_ns(CLOCK_MONOTONIC);
};

void ReplaceAFunctionBetweenTwoThreads(uint32_t version_hex) {
  struct stackd_cpython_layout own;
  const struct stackd_cpython_layout* layout = stackd_cpython_layout(version_hex, 0, &own);
  ASSERT_NE(layout, nullptr);
  Interpreter interpreter(*layout);
  Py_Version = version_hex;
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  stackd_managed_find_runtimes(maps);
  close(maps);
  ASSERT_FALSE(stackd_managed_is_unsettled());
  Agent agent;
  EXPECT_EQ(agent.FunctionOf(kThreads[0]), "Shop.pay");
  EXPECT_EQ(agent.FunctionOf(kThreads[1]), "Shop.pay");
  interpreter.PutAnotherInItsPlace();
  EXPECT_EQ(agent.FunctionOf(kThreads[1]), "Shop.lie");
  EXPECT_EQ(agent.FunctionOf(kThreads[0]), "Shop.lie");
}

class CpythonUnnumberedTest : public testing::TestWithParam<uint32_t> {};

// Each in a process of its own: an agent finds one interpreter and keeps to it.
TEST_P(CpythonUnnumberedTest, AFunctionThatIsTheSameInEachWordIsReadAnewByEachThread) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ReplaceAFunctionBetweenTwoThreads(GetParam());
    _exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "see above";
}

INSTANTIATE_TEST_SUITE_P(Versions, CpythonUnnumberedTest, testing::Values(0x030812f0, 0x030912f0, 0x030a0df0, 0x030b07f0),
                         [](const auto& info) { return "Python3_" + std::to_string(info.param >> 16 & 0xff); });

}  // namespace
}  // namespace stackd
