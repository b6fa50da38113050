#include "daemon/symbolize/imported_calls.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gtest/gtest.h>

namespace stackd {
namespace {

class ImportedCallsTest : public testing::Test {
 protected:
  ImportedCallsTest() : program_(*Module::Open(Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), "program")) {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&Nothing), &info);
    bias_ = reinterpret_cast<uint64_t>(info.dli_fbase) - program_->lowest_svma();
  }

  static void Nothing() {}
  std::string NameOfCallTo(const void* return_address) {
    return calls_.Name(program_, reinterpret_cast<uint64_t>(return_address) - bias_);
  }

  std::shared_ptr<const Module> program_;
  uint64_t bias_;
  ImportedCalls calls_;
};

[[gnu::noinline]] const void* ReturnAddress() { return __builtin_extract_return_addr(__builtin_return_address(0)); }

TEST_F(ImportedCallsTest, ACallIntoAnotherFileHasTheNameThatItImports) {
  void* innermost[1];
  ASSERT_EQ(backtrace(innermost, 1), 1);
  EXPECT_EQ(NameOfCallTo(innermost[0]), "backtrace");
}

TEST_F(ImportedCallsTest, ACallWithinAFileHasNone) { EXPECT_EQ(NameOfCallTo(ReturnAddress()), ""); }

TEST_F(ImportedCallsTest, WhatIsNoCallHasNone) {
  void* innermost[1];
  ASSERT_EQ(backtrace(innermost, 1), 1);
  EXPECT_EQ(NameOfCallTo(static_cast<char*>(innermost[0]) + 1), "");
  EXPECT_EQ(calls_.Name(program_, 0), "");
  EXPECT_EQ(calls_.Name(program_, UINT64_MAX), "");
}

}  // namespace
}  // namespace stackd
