#include "daemon/managed/hotspot/objects.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace stackd::hotspot {
namespace {

using testing::HasSubstr;

struct FakeSwitch {
  const bool* address;
  const char* name;
};

// The switches of a made-up VM in this process's memory, which says of objects only what all releases do.
class ObjectsTest : public testing::Test {
 protected:
  ObjectsTest() : memory_(files_) {
    Fd own(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(files_.SetMemory(&own));
    memset(static_cast<void*>(&layout_), 0xff, offsetof(Layout, zgc));
    layout_.flags_avma = reinterpret_cast<uint64_t>(&begin_);
    layout_.flag_count_avma = reinterpret_cast<uint64_t>(&count_);
    layout_.flag_name = offsetof(FakeSwitch, name);
    layout_.flag_address = offsetof(FakeSwitch, address);
    layout_.flag_bytes = sizeof(FakeSwitch);
    layout_.klass_constants = layout_.object_klass = 8;
  }

  // What is in the way of a VM that was started with `option`; empty: nothing.
  std::string Problem(const char* option) {
    switches_[1] = {&on_, option};
    const auto objects = Objects::Open(&memory_, layout_);
    memory_.Forget();
    return objects ? "" : objects.error().message;
  }

  ProcessFiles files_;
  ProcessMemory memory_;
  Layout layout_;
  const bool on_ = true;
  std::array<FakeSwitch, 2> switches_ = {{{&on_, "UseSomething"}, {}}};
  const uint64_t begin_ = reinterpret_cast<uint64_t>(&switches_), count_ = switches_.size();
};

TEST_F(ObjectsTest, TellWhichOptionOfTheVmIsInTheWay) {
  EXPECT_EQ(Problem("UseSomethingElse"), "");
  EXPECT_THAT(Problem("UseZGC"), HasSubstr("-XX:+UseZGC"));
  EXPECT_THAT(Problem("UseCompactObjectHeaders"), HasSubstr("-XX:+UseCompactObjectHeaders"));
  layout_.compact_klass_shift = 64;
  EXPECT_THAT(Problem("UseCompactObjectHeaders"), HasSubstr("-XX:+UseCompactObjectHeaders"));
  EXPECT_THAT(Problem("UseCompressedOops"), HasSubstr("references"));
  EXPECT_THAT(Problem("UseCompressedClassPointers"), HasSubstr("classes"));
  layout_.flag_name = kNone;
  EXPECT_THAT(Problem("UseSomethingElse"), HasSubstr("how it was started"));
}

}  // namespace
}  // namespace stackd::hotspot
