// Reads the file back by offsets from the documented layout; nothing here is shared with the writer.
#include "daemon/export/minidump.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "daemon/modules/address_map.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

using namespace std::string_literals;

constexpr uint64_t kStack = 0x7ffc'0000'1000, kOwnStack = 0x7f11'0000'0008;

StackCopy StackOf(uint64_t base_avma, std::vector<uint64_t> words, uint64_t outer_base_avma = 0,
                  std::vector<uint64_t> outer_words = {}) {
  std::vector<uint64_t> masks, kept;
  for (const auto& part : {words, outer_words}) {
    const size_t first_mask = masks.size();
    masks.resize(first_mask + (part.size() + 63) / 64);
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] == 0) continue;
      masks[first_mask + i / 64] |= 1ull << (i % 64);
      kept.push_back(part[i]);
    }
  }
  return {base_avma,       static_cast<uint32_t>(words.size()),      masks, kept,
          outer_base_avma, static_cast<uint32_t>(outer_words.size())};
}

ThreadCapture ThreadOf(int32_t tid, const std::string& name, StackCopy stack) {
  ThreadCapture thread;
  thread.tid = tid;
  thread.name = name;
  thread.status = ThreadStatus::kCaptured;
  thread.has_stack = true;
  for (size_t i = 0; i < thread.registers.value.size(); ++i) thread.registers.value[i] = 0x1000u * tid + i;
  thread.stack = std::move(stack);
  return thread;
}

struct MappedFile {
  uint64_t start_avma, end_avma;
  uint64_t file_offset;
  uint64_t bias;
  const char* permissions;
  std::string path;
  uint64_t inode;
  std::string build_id;
};

RawCapture CaptureOf(std::vector<ThreadCapture> threads, const std::vector<MappedFile>& files = {}) {
  RawCapture raw;
  raw.capture.process.pid = 4711;
  raw.capture.process.executable = "/srv/checkout (deleted)";
  raw.capture.begin_wall_ns = 1'790'000'000'500'000'000;
  raw.capture.threads = std::move(threads);
  std::vector<Mapping> mappings;
  for (const MappedFile& file : files) {
    mappings.push_back({.start_avma = file.start_avma,
                        .end_avma = file.end_avma,
                        .file_offset = file.file_offset,
                        .readable = file.permissions[0] == 'r',
                        .writable = file.permissions[1] == 'w',
                        .executable = file.permissions[2] == 'x',
                        .path = file.path,
                        .device = makedev(8, 1),
                        .inode = file.inode,
                        .bias = file.bias});
    raw.build_ids.push_back(file.build_id);
  }
  raw.capture.map = std::make_shared<const AddressMap>(std::move(mappings));
  return raw;
}

CrashCapture CrashOf(int32_t tid) {
  CrashCapture crash;
  crash.tid = tid;
  crash.signal_number = 11;
  crash.signal_code = 1;
  crash.fault_address_avma = 0xdead'beef'1234;
  return crash;
}

class Minidump {
 public:
  explicit Minidump(const RawCapture& raw) {
    ExportMinidump(raw, [this](std::string_view piece) {
      largest_piece_ = std::max(largest_piece_, piece.size());
      bytes_ += piece;
      return true;
    });
    EXPECT_EQ(bytes_.substr(0, 4), "MDMP");
    EXPECT_EQ(Number<uint16_t>(4), 0xa793);
    for (uint32_t i = 0; i < Number<uint32_t>(8); ++i) {
      const size_t entry = Number<uint32_t>(12) + 12 * i;
      const bool is_new = streams_.emplace(Number<uint32_t>(entry), Number<uint32_t>(entry + 8)).second;
      EXPECT_TRUE(is_new);
      sizes_[Number<uint32_t>(entry)] = Number<uint32_t>(entry + 4);
    }
  }

  template <typename T>
  T Number(size_t at) const {
    T value{};
    EXPECT_LE(at + sizeof(T), bytes_.size());
    if (at + sizeof(T) <= bytes_.size()) memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }

  bool Has(uint32_t stream) const { return streams_.contains(stream); }
  size_t Stream(uint32_t stream) const { return streams_.at(stream); }
  std::string StreamBytes(uint32_t stream) const { return bytes_.substr(Stream(stream), sizes_.at(stream)); }

  // Where each element of a list stream is.
  std::vector<size_t> Elements(uint32_t stream, size_t element_bytes) const {
    const auto count = Number<uint32_t>(Stream(stream));
    EXPECT_EQ(sizes_.at(stream), 4 + count * element_bytes);
    std::vector<size_t> places;
    for (uint32_t i = 0; i < count; ++i) places.push_back(Stream(stream) + 4 + i * element_bytes);
    return places;
  }

  std::u16string Text(size_t at) const {
    std::u16string text;
    for (uint32_t i = 0; i < Number<uint32_t>(at) / 2; ++i) text += Number<char16_t>(at + 4 + 2 * i);
    EXPECT_EQ(Number<char16_t>(at + 4 + Number<uint32_t>(at)), 0);
    return text;
  }

  // The words behind a MINIDUMP_MEMORY_DESCRIPTOR.
  std::vector<uint64_t> Words(size_t descriptor) const {
    std::vector<uint64_t> words;
    const auto rva = Number<uint32_t>(descriptor + 12);
    for (uint32_t i = 0; i < Number<uint32_t>(descriptor + 8) / 8; ++i) words.push_back(Number<uint64_t>(rva + 8 * i));
    return words;
  }

  std::string bytes_;
  size_t largest_piece_ = 0;

 private:
  std::map<uint32_t, size_t> streams_;
  std::map<uint32_t, uint32_t> sizes_;
};

constexpr uint32_t kThreads = 3, kModules = 4, kMemory = 5, kException = 6, kSystem = 7, kComment = 10, kMisc = 15,
                   kNames = 24, kMaps = 0x47670009;

TEST(Minidump, SaysWhereAndWhenItWasTaken) {
  const Minidump dump(CaptureOf({}));
  EXPECT_EQ(dump.Number<uint32_t>(20), 1'790'000'000u);
  EXPECT_EQ(dump.Number<uint16_t>(dump.Stream(kSystem)), 9) << "x86-64";
  EXPECT_EQ(dump.Number<uint32_t>(dump.Stream(kSystem) + 20), 0x8201u) << "Linux";
  EXPECT_EQ(dump.Text(dump.Number<uint32_t>(dump.Stream(kSystem) + 24)), u"");
  EXPECT_EQ(dump.Number<uint32_t>(dump.Stream(kMisc)), 24u);
  EXPECT_EQ(dump.Number<uint32_t>(dump.Stream(kMisc) + 4), 1u) << "the pid and nothing else";
  EXPECT_EQ(dump.Number<uint32_t>(dump.Stream(kMisc) + 8), 4711u);
  EXPECT_FALSE(dump.Has(kException)) << "nothing crashed";
}

TEST(Minidump, HasEachThreadWithItsRegistersStackAndName) {
  const Minidump dump(CaptureOf({ThreadOf(20, "main", StackOf(kStack, {0, 0x401000, 0, kStack + 24, 0})),
                                 ThreadOf(21, "wörker \U0001F600", StackOf(kStack + 0x100, {7}))}));
  const auto threads = dump.Elements(kThreads, 48);
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(dump.Number<uint32_t>(threads[0]), 20u);
  EXPECT_EQ(dump.Number<uint64_t>(threads[0] + 24), kStack);
  EXPECT_EQ(dump.Words(threads[0] + 24), (std::vector<uint64_t>{0, 0x401000, 0, kStack + 24, 0}));
  EXPECT_EQ(dump.Words(threads[1] + 24), (std::vector<uint64_t>{7}));

  EXPECT_EQ(dump.Number<uint32_t>(threads[1] + 40), 1232u);
  const auto context = dump.Number<uint32_t>(threads[1] + 44);
  EXPECT_EQ(dump.Number<uint32_t>(context + 48), 0x100003u) << "x86-64, control and integer registers";
  // Offsets in CONTEXT of rax rdx rcx rbx rsi rdi rbp rsp r8..r15 rip: the order of Registers.
  const std::vector<size_t> offsets{120, 136, 128, 144, 168, 176, 160, 152, 184, 192, 200, 208, 216, 224, 232, 240, 248};
  for (size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(dump.Number<uint64_t>(context + offsets[i]), 0x1000u * 21 + i);

  const auto names = dump.Elements(kNames, 12);
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(dump.Number<uint32_t>(names[1]), 21u);
  EXPECT_EQ(dump.Text(dump.Number<uint64_t>(names[0] + 4)), u"main");
  EXPECT_EQ(dump.Text(dump.Number<uint64_t>(names[1] + 4)), u"wörker \U0001F600");
}

TEST(Minidump, HasTheOuterPartOfAStackAsMemoryOfItsOwn) {
  const Minidump dump(CaptureOf({ThreadOf(20, "fiber", StackOf(kStack, {1, 2, 3}, kOwnStack, {4, 0, 5}))}));
  const auto thread = dump.Elements(kThreads, 48)[0];
  EXPECT_EQ(dump.Words(thread + 24), (std::vector<uint64_t>{1, 2, 3}));
  const auto memory = dump.Elements(kMemory, 16);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(dump.Number<uint64_t>(memory[0]), kStack);
  EXPECT_EQ(dump.Words(memory[0]), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(dump.Number<uint64_t>(memory[1]), kOwnStack);
  EXPECT_EQ(dump.Words(memory[1]), (std::vector<uint64_t>{4, 0, 5}));
}

TEST(Minidump, SaysWhichThreadCrashedAndHow) {
  RawCapture raw = CaptureOf({ThreadOf(20, "main", StackOf(kStack, {1})), ThreadOf(21, "bad", StackOf(kStack + 64, {2}))});
  raw.capture.crash = CrashOf(21);
  const Minidump dump(raw);
  const size_t exception = dump.Stream(kException);
  EXPECT_EQ(dump.StreamBytes(kException).size(), 168u);
  EXPECT_EQ(dump.Number<uint32_t>(exception), 21u);
  EXPECT_EQ(dump.Number<uint32_t>(exception + 8), 11u);
  EXPECT_EQ(dump.Number<uint32_t>(exception + 12), 1u);
  EXPECT_EQ(dump.Number<uint64_t>(exception + 24), 0xdead'beef'1234u);
  EXPECT_EQ(dump.Number<uint32_t>(exception + 160), 1232u);
  EXPECT_EQ(dump.Number<uint64_t>(dump.Number<uint32_t>(exception + 164) + 248), 0x1000u * 21 + 16) << "its rip";
}

TEST(Minidump, HasNoAddressOfASignalThatSomebodySent) {
  RawCapture raw = CaptureOf({ThreadOf(20, "main", StackOf(kStack, {1}))});
  raw.capture.crash = CrashOf(20);
  raw.capture.crash->signal_code = -6;  // SI_TKILL
  raw.capture.crash->flags = STACKD_CRASH_SENT;
  const Minidump dump(raw);
  EXPECT_EQ(dump.Number<uint64_t>(dump.Stream(kException) + 24), 0u);
  EXPECT_EQ(dump.Number<int32_t>(dump.Stream(kException) + 12), -6);
}

TEST(Minidump, SaysHowItCrashedAlsoWithoutTheThread) {
  RawCapture raw = CaptureOf({ThreadOf(20, "main", StackOf(kStack, {1}))});
  raw.capture.crash = CrashOf(99);
  const Minidump dump(raw);
  EXPECT_EQ(dump.Number<uint32_t>(dump.Stream(kException)), 99u);
  EXPECT_EQ(dump.Number<uint32_t>(dump.Stream(kException) + 160), 0u) << "no registers of another thread";
}

TEST(Minidump, ListsFilesWithCodeByTheirBuildIdsTheExecutableFirst) {
  const std::string library = "/usr/lib/libc.so.6";
  const Minidump dump(CaptureOf({}, {
                                        {0x10000, 0x11000, 0, 0x10000, "r--", library, 5, "0a1b"},
                                        {0x11000, 0x14000, 0x1000, 0x10000, "r-x", library, 5, "0a1b"},
                                        {0x14000, 0x15000, 0x4000, 0x10000, "rw-", library, 5, "0a1b"},
                                        {0x20000, 0x30000, 0, 0, "r--", "/usr/lib/locale/C.utf8", 6, ""},
                                        {0x40000, 0x41000, 0, 0, "rwx", "", 0, ""},
                                        {0x400000, 0x402000, 0, 0, "r-x", "/srv/checkout (deleted)", 7, "ff00ee"},
                                        {0x50000000, 0x50001000, 0, 0x50000000, "r-x", "[vdso]", 0, ""},
                                    }));
  const auto modules = dump.Elements(kModules, 108);
  ASSERT_EQ(modules.size(), 3u);
  auto name = [&](size_t at) { return dump.Text(dump.Number<uint32_t>(at + 20)); };
  auto code_view = [&](size_t at) {
    return dump.bytes_.substr(dump.Number<uint32_t>(at + 80), dump.Number<uint32_t>(at + 76));
  };
  EXPECT_EQ(name(modules[0]), u"/srv/checkout");
  EXPECT_EQ(code_view(modules[0]), "LEpB\xff\x00\xee"s);
  EXPECT_EQ(name(modules[1]), u"/usr/lib/libc.so.6");
  EXPECT_EQ(dump.Number<uint64_t>(modules[1]), 0x10000u);
  EXPECT_EQ(dump.Number<uint32_t>(modules[1] + 8), 0x5000u);
  EXPECT_EQ(code_view(modules[1]), "LEpB\x0a\x1b"s);
  EXPECT_EQ(name(modules[2]), u"linux-gate.so");
  EXPECT_EQ(code_view(modules[2]), "");
}

TEST(Minidump, CountsFromTheFilesFirstByteWhereItsTextIsMappedTwice) {
  const std::string path = "/usr/bin/node";
  const Minidump dump(CaptureOf({}, {
                                        {0x10000, 0x12000, 0, 0x10000, "r--", path, 5, "01"},
                                        {0x12000, 0x20000, 0x2000, 0x10000, "r-x", path, 5, "01"},
                                        {0x92000, 0xa0000, 0x2000, 0x90000, "r-x", path, 5, "01"},
                                    }));
  const auto modules = dump.Elements(kModules, 108);
  ASSERT_EQ(modules.size(), 2u);
  EXPECT_EQ(dump.Number<uint64_t>(modules[0]), 0x10000u);
  EXPECT_EQ(dump.Number<uint64_t>(modules[1]), 0x90000u);
  EXPECT_EQ(dump.Number<uint32_t>(modules[1] + 8), 0x10000u);
}

TEST(Minidump, HasTheMemoryMapInTheFormOfTheKernels) {
  const Minidump dump(CaptureOf({}, {{0x10000, 0x11000, 0x3000, 0, "r-x", "/bin/x", 5, ""},
                                     {0x7ffc00000000, 0x7ffc00010000, 0, 0, "rw-", "", 0, ""}}));
  EXPECT_EQ(dump.StreamBytes(kMaps),
            "00010000-00011000 r-xp 00003000 08:01 5 /bin/x\n7ffc00000000-7ffc00010000 rw-p 00000000 08:01 0 \n");
}

TEST(Minidump, SaysWhatItDoesNotHave) {
  ThreadCapture blocked;
  blocked.tid = 22;
  blocked.status = ThreadStatus::kTimedOut;
  RawCapture raw = CaptureOf({ThreadOf(20, "main", StackOf(kStack, {1})), blocked});
  raw.capture.notes = {"the ring was full"};
  const Minidump dump(raw);
  EXPECT_EQ(dump.Elements(kThreads, 48).size(), 1u);
  const std::string comment = dump.StreamBytes(kComment);
  EXPECT_NE(comment.find("the rest reads as zero"), std::string::npos);
  EXPECT_NE(comment.find("Not captured: 1 thread."), std::string::npos);
  EXPECT_NE(comment.find("the ring was full"), std::string::npos);
  EXPECT_EQ(comment.back(), '\0');
}

std::vector<ThreadCapture> DeepThreads(int count) {
  std::vector<ThreadCapture> threads;
  const std::vector<uint64_t> words(32768, 0x401000);
  for (int i = 1; i <= count; ++i) threads.push_back(ThreadOf(i, "deep", StackOf(kStack + 0x100000ull * i, words)));
  return threads;
}

TEST(Minidump, IsWrittenInPiecesAndWhole) {
  const Minidump dump(CaptureOf(DeepThreads(3)));
  EXPECT_LE(dump.largest_piece_, 64u << 10);
  for (size_t thread : dump.Elements(kThreads, 48)) {
    EXPECT_EQ(dump.Words(thread + 24), std::vector<uint64_t>(32768, 0x401000));
  }
}

TEST(Minidump, IsNotWrittenOnForAReaderThatLeft) {
  int pieces = 0;
  ExportMinidump(CaptureOf(DeepThreads(3)), [&](std::string_view) { return ++pieces < 2; });
  EXPECT_EQ(pieces, 2);
}

// Nothing but masks: a thread costs the test 4 KiB, and the file 256 KiB.
TEST(Minidump, LeavesOutStacksBehindWhatItCanPointToAndSaysSoButNotTheOneThatCrashed) {
  RawCapture raw = CaptureOf({});
  for (int i = 1; i <= 13'000; ++i) {
    raw.capture.threads.push_back(ThreadOf(i, "", StackCopy(kStack, 32768, std::vector<uint64_t>(512), {})));
  }
  raw.capture.crash = CrashOf(13'000);
  std::string head;
  std::string tail;
  uint64_t size_bytes = 0;
  ExportMinidump(raw, [&](std::string_view piece) {
    if (size_bytes == 0) head = piece;
    size_bytes += piece.size();
    tail += piece;
    if (tail.size() > 8u << 20) tail.erase(0, tail.size() - (4u << 20));
    return true;
  });
  uint32_t directory_rva;
  memcpy(&directory_rva, head.data() + 12, sizeof(directory_rva));
  EXPECT_EQ(size_bytes, directory_rva + 9 * 12u);
  EXPECT_LT(size_bytes, 1ull << 32);
  EXPECT_NE(tail.find("No room in the file for the stacks of "), std::string::npos);
  // The first context is that of the thread that crashed.
  uint64_t rip;
  memcpy(&rip, head.data() + 32 + 248, sizeof(rip));
  EXPECT_EQ(rip, 0x1000u * 13'000 + 16);
}

}  // namespace
}  // namespace stackd
