extern "C" {
#include "agent/maps/loaded_object.h"
}

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace {

std::vector<stackd_loaded_object>* collected;

std::vector<stackd_loaded_object> Objects() {
  std::vector<stackd_loaded_object> objects;
  collected = &objects;
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  stackd_loaded_objects(maps, [](const stackd_loaded_object* object) { collected->push_back(*object); });
  close(maps);
  return objects;
}

std::vector<uint64_t> Find(const char* name) {
  std::vector<uint64_t> found;
  for (const stackd_loaded_object& object : Objects()) {
    const uint64_t address = stackd_loaded_symbol(&object, name).address;
    if (address != 0) found.push_back(address);
  }
  return found;
}

bool IsAmong(const void* address, const std::vector<uint64_t>& found) {
  for (uint64_t one : found) {
    if (one == reinterpret_cast<uint64_t>(address)) return true;
  }
  return false;
}

TEST(LoadedObject, SymbolsAreWhereTheLoaderSaysThatTheyAre) {
  // (Not memcpy and its like: these are chosen at run time.)
  for (const char* name : {"malloc", "environ", "getenv", "pthread_create", "_ZNSt8ios_base4InitC1Ev", "fopen", "qsort"}) {
    EXPECT_TRUE(IsAmong(dlsym(RTLD_DEFAULT, name), Find(name))) << name;
  }
}

TEST(LoadedObject, TheOldTableOfNamesSaysWhatTheNewOneSays) {
  int compared = 0;
  for (const stackd_loaded_object& object : Objects()) {
    if (object.hash == 0 || object.old_hash == 0) continue;  // libc has both
    for (const char* name :
         {"malloc", "environ", "pthread_create", "fopen", "qsort", "stackd_has_no_such_function", "errno"}) {
      const auto by_new = stackd_loaded_symbol(&object, name);
      stackd_loaded_object old = object;
      old.hash = 0;
      const auto by_old = stackd_loaded_symbol(&old, name);
      EXPECT_EQ(by_old.address, by_new.address) << name;
      EXPECT_EQ(by_old.size_bytes, by_new.size_bytes) << name;
      compared += by_new.address != 0;
    }
  }
  EXPECT_GE(compared, 5);
}

TEST(LoadedObject, SizesAreThoseOfTheSymbols) {
  int found = 0;
  for (const stackd_loaded_object& object : Objects()) {
    const auto symbol = stackd_loaded_symbol(&object, "_IO_2_1_stdout_");
    if (symbol.address == 0) continue;
    EXPECT_EQ(symbol.size_bytes, 224u);  // readelf --dyn-syms libc.so.6
    ++found;
  }
  EXPECT_EQ(found, 1);
}

TEST(LoadedObject, WhatNobodyExportsIsNotFound) {
  EXPECT_TRUE(Find("stackd_has_no_such_function").empty());
  EXPECT_TRUE(Find("").empty());
  // Thread-local: its value is no address.
  EXPECT_TRUE(Find("errno").empty());
}

TEST(LoadedObject, WhatWasLoadedForOneLibraryAloneIsFound) {
  void* library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_TRUE(IsAmong(dlsym(library, "zlibVersion"), Find("zlibVersion")));
}

TEST(LoadedObject, AnObjectThatIsGoneHasNoSymbols) {
  stackd_loaded_object object = {};
  object.hash = object.symbols = object.strings = 0x1000;
  EXPECT_EQ(stackd_loaded_symbol(&object, "malloc").address, 0u);
}

}  // namespace
