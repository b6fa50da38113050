#include "daemon/modules/module_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

namespace stackd {
namespace {

TEST(ModuleCache, AFileHasInEachDumpTheNameThatItsProcessGaveIt) {
  ModuleCache cache;
  auto open_self = [] { return Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)); };
  auto evil = cache.Get(open_self(), "/tmp/anything");
  auto honest = cache.Get(open_self(), "/usr/bin/program");
  auto again = cache.Get(open_self(), "/usr/bin/program");
  ASSERT_TRUE(evil && honest && again);
  EXPECT_EQ((*honest)->path(), "/usr/bin/program");
  EXPECT_EQ(*honest, *again) << "parsed once";
}

TEST(ModuleCache, AFileFromTheEndOfTimeIsNotAnOverflow) {
  Fd file(memfd_create("module", MFD_CLOEXEC));
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(self), {}};
  ASSERT_EQ(write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  timespec times[2] = {{INT64_MAX, 0}, {INT64_MAX, 999'999'999}};
  ASSERT_EQ(futimens(file.get(), times), 0);
  EXPECT_TRUE(ModuleCache().Get(std::move(file), "/lib/x.so").has_value());
}

TEST(ModuleCache, WhatIsNoElfFileIsNoModule) {
  EXPECT_FALSE(ModuleCache().Get(Fd(memfd_create("empty", MFD_CLOEXEC)), "x").has_value());
  EXPECT_FALSE(ModuleCache().Get(Fd(open("/", O_RDONLY | O_CLOEXEC)), "x").has_value());
}

}  // namespace
}  // namespace stackd
