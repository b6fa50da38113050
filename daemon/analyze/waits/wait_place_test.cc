#include "daemon/analyze/waits/wait_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/unwind/testing/own_process.h"

namespace stackd {
namespace {

long zero_variable;
long set_variable = 7;

uint64_t AvmaOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

class WaitPlacesTest : public testing::Test {
 protected:
  WaitPlacesTest() {
    capture_.map = OwnAddressMap();
    capture_.process.pid = getpid();
    ThreadCapture& thread = capture_.threads.emplace_back();
    thread.tid = getpid() + 1;
    thread.name = "writer";
    thread.has_stack = true;
    thread.registers.value[Registers::kRsp] = AvmaOf(__builtin_frame_address(0));
  }

  std::string PlaceOf(const void* pointer) {
    return WaitPlaces(capture_, [](const auto& addresses) { return std::vector<std::string>(addresses.size(), "name"); },
                      {AvmaOf(pointer)})
        .Of(AvmaOf(pointer));
  }

  Capture capture_;
};

TEST_F(WaitPlacesTest, VariablesAreNamedWithTheirModule) {
  EXPECT_EQ(PlaceOf(&zero_variable), ".bss of wait_place_test: name");
  EXPECT_EQ(PlaceOf(&set_variable), ".data of wait_place_test: name");
}

TEST_F(WaitPlacesTest, OnlyVariablesAreStatic) {
  const WaitPlaces places(capture_, {}, {});
  EXPECT_TRUE(places.IsStatic(AvmaOf(&zero_variable)));
  EXPECT_FALSE(places.IsStatic(AvmaOf(__builtin_frame_address(0))));
}

TEST_F(WaitPlacesTest, StackNamesItsThread) {
  capture_.process.pid = 1;
  const std::string tid = std::to_string(capture_.threads[0].tid);
  // The main thread's stack has a name of its own in the map, and a test runs there.
  EXPECT_EQ(PlaceOf(__builtin_frame_address(0)), "stack of thread writer (tid " + tid + ")");
}

TEST_F(WaitPlacesTest, MemoryOfNoFileIsAnonymous) {
  void* memory = mmap(nullptr, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  capture_.map = OwnAddressMap();
  EXPECT_EQ(PlaceOf(memory), "anonymous memory");
  munmap(memory, 1 << 20);
  capture_.map = OwnAddressMap();
  EXPECT_EQ(PlaceOf(memory), "");
}

TEST_F(WaitPlacesTest, MemoryThatProcessesShareIsCalledSo) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  capture_.map = OwnAddressMap();
  EXPECT_EQ(PlaceOf(memory), "shared memory");
  munmap(memory, 4096);
}

}  // namespace
}  // namespace stackd
