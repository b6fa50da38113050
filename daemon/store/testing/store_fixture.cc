#include "daemon/store/testing/store_fixture.h"

#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "daemon/base/clock.h"

namespace stackd {

StoreTest::StoreTest() {
  std::string pattern = testing::TempDir() + "/store-XXXXXX";
  directory_ = mkdtemp(pattern.data());
  file_ = directory_ + "/store.db";
}

StoreTest::~StoreTest() { std::filesystem::remove_all(directory_); }

std::unique_ptr<DumpStore> StoreTest::Open(DumpStoreOptions options) {
  if (options.file.empty()) options.file = file_;
  auto store = DumpStore::Open(options);
  EXPECT_TRUE(store) << store.error().message;
  return store ? std::move(*store) : nullptr;
}

v1::Dump MakeDump(int number, const std::string& process, int threads) {
  v1::Dump dump;
  dump.set_name("processes/" + process + "/dumps/d" + std::to_string(number));
  dump.mutable_process()->set_name("processes/" + process);
  dump.mutable_process()->set_display_name("checkout-" + process);
  dump.set_trigger(v1::Dump::REQUEST);
  dump.set_state(v1::Dump::COMPLETE);
  dump.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
  dump.mutable_thread_counts()->set_listed(threads);
  dump.add_notes("a note");
  for (int i = 0; i < threads; ++i) {
    v1::Thread* thread = dump.add_threads();
    thread->set_tid(i + 1);
    thread->set_name("worker");
    dump.add_stacks()->add_frames()->set_function("f" + std::to_string(i));
  }
  return dump;
}

v1::Dump MakeLargeDump(int number, size_t size_bytes) {
  v1::Dump dump = MakeDump(number);
  std::string& text = *dump.add_stacks()->add_frames()->mutable_function();
  uint32_t random = number + 1;
  while (text.size() < size_bytes) text += static_cast<char>(' ' + (random = random * 1664525 + 1013904223) % 95);
  return dump;
}

std::string DumpName(int number) { return "processes/7-100/dumps/d" + std::to_string(number); }

v1::Dump MakeRequest(int number) {
  v1::Dump dump;
  dump.set_name(DumpName(number));
  dump.mutable_process()->set_display_name("checkout");
  dump.set_trigger(v1::Dump::REQUEST);
  dump.mutable_create_time()->set_seconds(WallNs() / kNsPerSecond);
  return dump;
}

std::string FingerprintNumber(int number) {
  char id[33];
  snprintf(id, sizeof(id), "f%031x", number);
  return id;
}

v1::Dump MakeCrash(int number, int group) {
  v1::Dump dump = MakeRequest(number);
  dump.set_trigger(v1::Dump::CRASH);
  v1::Crash* crash = dump.mutable_crash();
  char id[33];
  snprintf(id, sizeof(id), "%032x", number);
  crash->set_id(id);
  crash->set_explanation("null dereference in load number " + std::to_string(number));
  crash->set_fingerprint(FingerprintNumber(group));
  crash->set_fingerprint_rule("crash-1");
  v1::FingerprintFrame* skipped = crash->add_fingerprint_frames();
  skipped->set_function("abort");
  skipped->set_rule("noise: abort");
  v1::FingerprintFrame* used = crash->add_fingerprint_frames();
  used->set_function("load" + std::to_string(group));
  used->set_module("checkout");
  used->set_used(true);
  return dump;
}

v1::Dump MakeHang(int number, int group) {
  v1::Dump dump = MakeRequest(number);
  dump.set_trigger(v1::Dump::HANG);
  v1::Hang* hang = dump.mutable_hang();
  hang->set_explanation("2 threads wait for each other");
  hang->set_fingerprint(FingerprintNumber(group));
  hang->set_fingerprint_rule("hang-1");
  v1::FingerprintFrame* used = hang->add_fingerprint_frames();
  used->set_function("pay");
  used->set_used(true);
  return dump;
}

v1::Dump Unfinished(v1::Dump dump) {
  for (auto clear : {&v1::Crash::clear_fingerprint, &v1::Crash::clear_fingerprint_rule,
                     &v1::Crash::clear_fingerprint_frames, &v1::Crash::clear_explanation}) {
    (dump.mutable_crash()->*clear)();
  }
  return dump;
}

void Put(DumpStore* store, const v1::Dump& dump) {
  const auto put = store->Put(dump);
  ASSERT_TRUE(put) << put.error().message;
}

void Store(DumpStore* store, const v1::Dump& crash) {
  const auto raw = store->PutRaw(Unfinished(crash), "raw");
  ASSERT_TRUE(raw) << raw.error().message;
  const auto put = store->Put(crash);
  ASSERT_TRUE(put) << put.error().message;
}

std::vector<std::string> NamesOf(const DumpPage& page) {
  std::vector<std::string> names;
  for (const v1::Dump& dump : page.dumps) names.push_back(dump.name());
  return names;
}

std::vector<std::string> Names(std::initializer_list<int> numbers) {
  std::vector<std::string> names;
  for (int number : numbers) names.push_back(DumpName(number));
  return names;
}

std::vector<std::string> DumpsOf(const v1::CrashGroup& group) { return {group.dumps().begin(), group.dumps().end()}; }

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

void Execute(const std::string& file, const std::string& sql) {
  sqlite3* connection;
  ASSERT_EQ(sqlite3_open(file.c_str(), &connection), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(connection);
  sqlite3_close(connection);
}

}  // namespace stackd
