// A capture that is put together thread by thread, and what is assembled of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/assemble/assemble.h"
#include "daemon/modules/address_map.h"

namespace stackd {

inline constexpr uint64_t kApp = 0x400000, kLib = 0x7f0000000000, kJit = 0x7f1000000000, kNowhere = 0x10;

inline Mapping Map(uint64_t start, const std::string& path) {
  Mapping mapping{};
  mapping.start_avma = start;
  mapping.end_avma = start + 0x100000;
  mapping.file_offset = 0x1000;
  mapping.executable = true;
  mapping.path = path;
  return mapping;
}

inline std::shared_ptr<const SourceLocation> Named(std::vector<SourceFrame> frames, std::string reason = "") {
  return std::make_shared<const SourceLocation>(SourceLocation{std::move(frames), std::move(reason)});
}

class AssembleTest : public testing::Test {
 protected:
  AssembleTest() {
    capture_.process.id = "4711-100";
    capture_.process.pid = 4711;
    capture_.process.display_name = "checkout";
    capture_.process.hostname = "pod-7";
    capture_.begin_wall_ns = 1'795'230'902'000'000'007;
    capture_.duration_ns = 9'800'000;
    capture_.dump_signal = 34;
    capture_.map = std::make_shared<const AddressMap>(
        std::vector{Map(kApp, "/srv/bin/app"), Map(kLib, "/usr/lib/libfoo.so (deleted)"), Map(kJit, "")});
  }

  // Frames named by `functions`, innermost first, in the app; the index of the stack.
  int AddStack(const std::vector<std::string>& functions, StackEnd end = StackEnd::kRoot) {
    NamedStack stack;
    stack.native.end = end;
    for (const std::string& function : functions) {
      const FrameOrigin origin = stack.native.frames.empty() ? FrameOrigin::kRegisters : FrameOrigin::kCfi;
      stack.native.frames.push_back({kApp + 0x100 + 16 * stack.native.frames.size() + stacks_.size(), 0, origin});
      stack.locations.push_back(Named({{function, "/src/app.cc", 7, false}}));
    }
    stacks_.push_back(std::move(stack));
    return static_cast<int>(stacks_.size()) - 1;
  }

  int AddFrame(uint64_t pc_avma, std::shared_ptr<const SourceLocation> location) {
    NamedStack stack;
    stack.native = {{{pc_avma, 0, FrameOrigin::kRegisters}}, StackEnd::kRoot};
    stack.locations = {std::move(location)};
    stacks_.push_back(std::move(stack));
    return static_cast<int>(stacks_.size()) - 1;
  }

  ThreadCapture& AddThread(int32_t tid, const std::string& name, int stack, ThreadStatus status = ThreadStatus::kCaptured) {
    ThreadCapture& thread = capture_.threads.emplace_back();
    thread.tid = tid;
    thread.name = name;
    thread.status = status;
    thread.has_stack = stack >= 0;
    if (stack >= 0) thread.registers.value[Registers::kRip] = stacks_[stack].native.frames[0].pc_avma;
    stack_of_thread_.push_back(stack);
    return thread;
  }

  v1::Dump Assemble() const {
    return *AssembleDump(capture_, stack_of_thread_, stacks_, [](const Module&) { return SymbolQuality::kNone; }, "d1");
  }

  Capture capture_;
  std::vector<NamedStack> stacks_;
  std::vector<int> stack_of_thread_;
};

inline std::vector<std::string> Notes(const v1::Dump& dump) { return {dump.notes().begin(), dump.notes().end()}; }

}  // namespace stackd
