// A store in a directory of its own, and dumps to put into it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/store/dump_store.h"
#include "stackd/v1/stackd.pb.h"

namespace stackd {

class StoreTest : public testing::Test {
 protected:
  StoreTest();
  ~StoreTest() override;

  // Opens the store in `file_`, unless `options` names another file.
  std::unique_ptr<DumpStore> Open(DumpStoreOptions options = {});

  std::string directory_;
  std::string file_;
};

// A dump on request with `threads` threads: "processes/{process}/dumps/d{number}".
v1::Dump MakeDump(int number, const std::string& process = "4711-100", int threads = 3);
// A dump of about as many bytes in the store as given: random text cannot be compressed.
v1::Dump MakeLargeDump(int number, size_t size_bytes);

std::string DumpName(int number);  // of the dumps below
v1::Dump MakeRequest(int number);
std::string FingerprintNumber(int number);
// The crash `number`, of the group `group`.
v1::Dump MakeCrash(int number, int group = 1);
v1::Dump MakeHang(int number, int group);
// What is known before the stacks are unwound.
v1::Dump Unfinished(v1::Dump dump);

void Put(DumpStore* store, const v1::Dump& dump);
// Stores a crash on its usual way.
void Store(DumpStore* store, const v1::Dump& crash);

std::vector<std::string> NamesOf(const DumpPage& page);
std::vector<std::string> Names(std::initializer_list<int> numbers);  // by DumpName
std::vector<std::string> DumpsOf(const v1::CrashGroup& group);

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& content);
// Runs SQL on a database file.
void Execute(const std::string& file, const std::string& sql);

}  // namespace stackd
