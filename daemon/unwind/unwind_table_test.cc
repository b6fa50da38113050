#include "daemon/unwind/unwind_table.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <thread>

#include "daemon/unwind/testing/synthetic_module.h"
#include "daemon/unwind/unwind_table_cache.h"

namespace stackd {

void PrintTo(const UnwindRule& rule, std::ostream* out);
void PrintTo(const UnwindRule& rule, std::ostream* out) {
  *out << "{kind " << int(rule.kind) << " offset " << rule.cfa_offset << " rbp " << int(rule.rbp) << " " << rule.rbp_offset
       << "}";
}

namespace {

std::shared_ptr<const UnwindTable> Compile(const CfiBuilder& cfi) {
  CfiSection section{.svma = kSyntheticCfiSvma, .inflated = cfi.bytes()};
  return UnwindTable::Compile(std::move(section), cfi.bytes(), kSyntheticCode);
}

UnwindRule Rule(RuleKind kind, int32_t cfa_offset, RbpRule rbp = RbpRule::kSame, int16_t rbp_offset = 0) {
  return {kind, rbp, rbp_offset, cfa_offset};
}

TEST(UnwindTable, GivesTheRuleAtEachInstruction) {
  CfiBuilder cfi;
  // push %rbp; mov %rsp,%rbp; ...; leave; ret
  cfi.Fde(cfi.Cie(), 0x1000, 0x20, {0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x5b, 0x0c, 7, 8});
  auto table = Compile(cfi);
  EXPECT_EQ(table->Find(0xfff), UnwindRule{});
  EXPECT_EQ(table->Find(0x1000), Rule(RuleKind::kRsp, 8));
  EXPECT_EQ(table->Find(0x1001), Rule(RuleKind::kRsp, 16, RbpRule::kAtCfa, -16));
  EXPECT_EQ(table->Find(0x1003), Rule(RuleKind::kRsp, 16, RbpRule::kAtCfa, -16));
  EXPECT_EQ(table->Find(0x1004), Rule(RuleKind::kRbp, 16, RbpRule::kAtCfa, -16));
  EXPECT_EQ(table->Find(0x101e), Rule(RuleKind::kRbp, 16, RbpRule::kAtCfa, -16));
  EXPECT_EQ(table->Find(0x101f), Rule(RuleKind::kRsp, 8, RbpRule::kAtCfa, -16));
  EXPECT_EQ(table->Find(0x1020), UnwindRule{});
}

TEST(UnwindTable, KnowsNothingBetweenFunctions) {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie();
  cfi.Fde(cie, 0x3000, 0x10, {});
  cfi.Fde(cie, 0x1000, 0x10, {0x0e, 24});
  cfi.Fde(cie, 0x1010, 0x10, {0x0e, 32});
  auto table = Compile(cfi);
  EXPECT_EQ(table->fde_count(), 3u);
  EXPECT_EQ(table->Find(0x100f), Rule(RuleKind::kRsp, 24));
  EXPECT_EQ(table->Find(0x1010), Rule(RuleKind::kRsp, 32));
  EXPECT_EQ(table->Find(0x1020), UnwindRule{});
  EXPECT_EQ(table->Find(0x2fff), UnwindRule{});
  EXPECT_EQ(table->Find(0x3000), Rule(RuleKind::kRsp, 8));
  EXPECT_EQ(table->Find(0x3010), UnwindRule{});
}

TEST(UnwindTable, KeepsExpressionsThatCompilersAndLinkersUse) {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie();
  cfi.Fde(cie, 0x1000, 0x10, {0x0f, 11, 0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22});
  cfi.Fde(cie, 0x1010, 0x10, {0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0x00});
  cfi.Fde(cie, 0x1020, 0x10, {0x0f, 5, 0x77, 0x10, 0x06, 0x23, 0x08});
  cfi.Fde(cie, 0x1030, 0x10, {0x07, 16});
  auto table = Compile(cfi);
  EXPECT_EQ(table->Find(0x1000), Rule(RuleKind::kPlt, 11));
  EXPECT_EQ(table->Find(0x1010), Rule(RuleKind::kAtRbp, -8, RbpRule::kAtRbp, 0));
  EXPECT_EQ(table->Find(0x1020), Rule(RuleKind::kAtRspPlus8, 16));
  EXPECT_EQ(table->Find(0x1030), Rule(RuleKind::kRoot, 0));
}

TEST(UnwindTable, LeavesWhatDoesNotFitToTheInterpreter) {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie();
  cfi.Fde(cie, 0x1000, 0x10, {0x0c, 10, 0});             // CFA by r10
  cfi.Fde(cie, 0x1010, 0x10, {0x0f, 2, 0x77, 0x08});     // CFA by another expression
  cfi.Fde(cie, 0x1020, 0x10, {0x90, 2});                 // return address elsewhere
  cfi.Fde(cie, 0x1030, 0x10, {0x09, 6, 3});              // rbp in rbx
  cfi.Fde(cie, 0x1040, 0x10, {0x86, 0x80, 0x80, 0x01});  // rbp far away
  cfi.Fde(cfi.Cie("zRS"), 0x1050, 0x10, {});             // signal frame
  auto table = Compile(cfi);
  for (uint64_t svma = 0x1000; svma < 0x1060; svma += 0x10) {
    EXPECT_EQ(table->Find(svma), Rule(RuleKind::kSlow, 0)) << std::hex << svma;
    EXPECT_TRUE(table->Interpret(nullptr, svma)) << std::hex << svma;
  }
  EXPECT_EQ(table->Interpret(nullptr, 0x1000)->row.cfa.register_number, 10u);
  EXPECT_EQ(table->Interpret(nullptr, 0x1030)->row.registers[6].register_number, 3u);
  EXPECT_TRUE(table->Interpret(nullptr, 0x1050)->cie.is_signal_frame);
}

TEST(UnwindTable, RestoresRules) {
  CfiBuilder cfi;
  cfi.Fde(cfi.Cie(), 0x1000, 0x10, {0x0e, 16, 0x86, 2, 0x0a, 0x41, 0xc6, 0x0e, 8, 0x41, 0x0b, 0x41, 0x06, 6});
  auto table = Compile(cfi);
  EXPECT_EQ(table->Find(0x1000), Rule(RuleKind::kRsp, 16, RbpRule::kAtCfa, -16));
  EXPECT_EQ(table->Find(0x1001), Rule(RuleKind::kRsp, 8));
  EXPECT_EQ(table->Find(0x1002), Rule(RuleKind::kRsp, 16, RbpRule::kAtCfa, -16));
  EXPECT_EQ(table->Find(0x1003), Rule(RuleKind::kRsp, 16));
}

TEST(UnwindTable, TrustsAFunctionUpToWhereItMakesNoSense) {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie();
  cfi.Fde(cie, 0x1000, 0x10, {0x41, 0x0e, 16, 0x41, 0x3f});
  cfi.Fde(cie, 0x1010, 0x10, {0x0b});
  cfi.Fde(cie, 0x1020, 0x10, {0x0e, 24});
  auto table = Compile(cfi);
  EXPECT_EQ(table->Find(0x1000), Rule(RuleKind::kRsp, 8));
  EXPECT_EQ(table->Find(0x1001), Rule(RuleKind::kRsp, 16));
  EXPECT_EQ(table->Find(0x1002), UnwindRule{});
  EXPECT_FALSE(table->Interpret(nullptr, 0x1002));
  EXPECT_EQ(table->Find(0x1010), UnwindRule{});
  EXPECT_EQ(table->Find(0x1020), Rule(RuleKind::kRsp, 24));
}

TEST(UnwindTable, IgnoresFunctionsOutsideCode) {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie();
  cfi.Fde(cie, 0, 0x10, {});
  cfi.Fde(cie, 0x4ff8, 0x10, {});
  cfi.Fde(cie, 0x5000, 0x10, {});
  auto table = Compile(cfi);
  EXPECT_EQ(table->fde_count(), 1u);
  EXPECT_EQ(table->Find(0x4fff), Rule(RuleKind::kRsp, 8));
  EXPECT_EQ(table->Find(0x5000), UnwindRule{});
  EXPECT_EQ(table->Find(0), UnwindRule{});
}

TEST(UnwindTable, SurvivesAnyTruncation) {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie("zPLR", {0x9b, 1, 2, 3, 4, 0x1b, 0x1b});
  cfi.Fde(cie, 0x1000, 0x10, {0x41, 0x0e, 16, 0x86, 2, 0x10, 6, 2, 0x76, 0x00});
  cfi.Fde(cie, 0x1010, 0x10, {0x02, 3, 0x03, 3, 0, 0x04, 1, 0, 0, 0, 0x0e, 32});
  for (size_t length = 0; length <= cfi.bytes().size(); ++length) {
    std::vector<uint8_t> bytes(cfi.bytes().begin(), cfi.bytes().begin() + static_cast<ptrdiff_t>(length));
    CfiSection section{.svma = kSyntheticCfiSvma, .inflated = bytes};
    auto table = UnwindTable::Compile(std::move(section), bytes, kSyntheticCode);
    for (uint64_t svma = 0x1000; svma < 0x1020; ++svma) {
      auto precise = table->Interpret(nullptr, svma);
      EXPECT_EQ(table->Find(svma), precise ? CompactRule(precise->cie, precise->row) : UnwindRule{});
    }
    EXPECT_EQ(table->fde_count() == 2, length == cfi.bytes().size());
  }
}

std::vector<std::string> Libraries() {
  std::vector<std::string> paths;
  for (const char* name :
       {"libc.so.6", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libcrypto.so.3"}) {
    for (const char* folder : {"/lib/x86_64-linux-gnu/", "/usr/lib/x86_64-linux-gnu/"}) {
      std::string path = std::string(folder) + name;
      if (access(path.c_str(), R_OK) != 0) continue;
      paths.push_back(path);
      break;
    }
  }
  return paths;
}

TEST(UnwindTable, AgreesWithTheInterpreterOnEveryRowOfRealLibraries) {
  ASSERT_GE(Libraries().size(), 3u);
  for (const std::string& path : Libraries()) {
    auto module = Module::Open(Fd(open(path.c_str(), O_RDONLY)), path);
    ASSERT_TRUE(module) << module.error().message;
    auto table = UnwindTable::Compile(**module);
    EXPECT_GT(table->fde_count(), 10u) << path;
    size_t wrong = 0, slow = 0;
    auto check = [&](uint64_t svma) {
      auto precise = table->Interpret(module->get(), svma);
      UnwindRule expected = precise ? CompactRule(precise->cie, precise->row) : UnwindRule{};
      if (table->Find(svma) != expected) ++wrong;
      slow += expected.kind == RuleKind::kSlow;
    };
    for (uint64_t svma : table->RowSvmas()) {
      check(svma);
      check(svma - 1);
    }
    EXPECT_EQ(wrong, 0u) << path;
    printf("%s: %zu FDEs, %zu rows, %zu rules, %zu rows interpreted, %zu KiB\n", path.c_str(), table->fde_count(),
           table->row_count(), table->rule_count(), slow / 2, table->memory_bytes() >> 10);
  }
}

// One CIE (version 4) and one FDE for 0x2000..0x2010, whose frame is 40 bytes.
const std::vector<uint8_t> kDebugFrame = {
    16, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 4,    0,    8, 0, 1, 0x78, 16, 0x0c, 7,    8, 0x90, 1,  //
    22, 0, 0, 0, 0,    0,    0,    0,    0x00, 0x20, 0, 0, 0, 0,    0,  0,    0x10, 0, 0,    0, 0, 0, 0, 0, 0x0e, 40,
};

TEST(UnwindTable, ReadsDebugFrame) {
  auto module = SyntheticModule(".debug_frame", 0, kDebugFrame);
  auto table = UnwindTable::Compile(*module);
  EXPECT_EQ(table->Find(0x2000), Rule(RuleKind::kRsp, 40));
  EXPECT_TRUE(table->Interpret(module.get(), 0x200f));
}

TEST(UnwindTable, ReadsDebugFrameForWhatEhFrameLeavesOut) {
  CfiBuilder cfi;
  uint32_t cie = cfi.Cie();
  cfi.Fde(cie, 0x1000, 0x20, {0x0e, 24});
  cfi.Fde(cie, 0x3000, 0x20, {0x0e, 32});
  std::vector<SyntheticSection> sections = {{".eh_frame", SHF_ALLOC, cfi.bytes()}, {".debug_frame", 0, kDebugFrame}};
  auto module = SyntheticModule(sections);
  auto table = UnwindTable::Compile(*module);
  EXPECT_EQ(table->Find(0x1000), Rule(RuleKind::kRsp, 24));
  EXPECT_EQ(table->Find(0x2000), Rule(RuleKind::kRsp, 40));
  EXPECT_EQ(table->Find(0x2010), UnwindRule{});
  EXPECT_EQ(table->Find(0x3000), Rule(RuleKind::kRsp, 32));
  ASSERT_TRUE(table->FunctionAt(0x200f));
  EXPECT_EQ(table->FunctionAt(0x200f)->begin_svma, 0x2000u);
  EXPECT_GE(table->FunctionAt(0x200f)->end_svma, 0x2010u);
  EXPECT_FALSE(table->FunctionAt(0x2010));
  EXPECT_TRUE(table->Interpret(module.get(), 0x200f));
  EXPECT_TRUE(table->Interpret(module.get(), 0x3000));
  EXPECT_EQ(table->section_bytes(), cfi.bytes().size() + kDebugFrame.size());

  sections.pop_back();
  EXPECT_LT(UnwindTable::Compile(*SyntheticModule(sections))->memory_bytes(), table->memory_bytes());
}

std::vector<uint8_t> Compressed(const std::vector<uint8_t>& content, uint32_t type, uint64_t size_bytes) {
  uLongf bound = compressBound(content.size());
  std::vector<uint8_t> bytes(sizeof(Elf64_Chdr) + bound);
  Elf64_Chdr header{type, 0, size_bytes, 1};
  memcpy(bytes.data(), &header, sizeof(header));
  EXPECT_EQ(compress(bytes.data() + sizeof(header), &bound, content.data(), content.size()), Z_OK);
  bytes.resize(sizeof(header) + bound);
  return bytes;
}

TEST(UnwindTable, ReadsCompressedDebugFrame) {
  auto module =
      SyntheticModule(".debug_frame", SHF_COMPRESSED, Compressed(kDebugFrame, ELFCOMPRESS_ZLIB, kDebugFrame.size()));
  auto table = UnwindTable::Compile(*module);
  EXPECT_EQ(table->Find(0x2000), Rule(RuleKind::kRsp, 40));
  EXPECT_TRUE(table->Interpret(module.get(), 0x200f));
}

TEST(UnwindTable, IsEmptyIfCompressionLies) {
  for (auto content : {Compressed(kDebugFrame, ELFCOMPRESS_ZLIB, kDebugFrame.size() + 1),
                       Compressed(kDebugFrame, ELFCOMPRESS_ZLIB, uint64_t{1} << 60),
                       Compressed(kDebugFrame, 77, kDebugFrame.size()), std::vector<uint8_t>{1, 2, 3}}) {
    auto table = UnwindTable::Compile(*SyntheticModule(".debug_frame", SHF_COMPRESSED, content));
    EXPECT_EQ(table->row_count(), 0u);
    EXPECT_EQ(table->Find(0x2000), UnwindRule{});
  }
}

TEST(UnwindTableCache, CompilesAModuleOnceForAllThreads) {
  UnwindTableCache cache(1 << 20);
  auto module = SyntheticModule(".debug_frame", 0, kDebugFrame);
  std::shared_ptr<const UnwindTable> tables[4];
  {
    std::vector<std::jthread> threads;
    for (auto& table : tables) threads.emplace_back([&] { table = cache.Get(*module); });
  }
  for (auto& table : tables) EXPECT_EQ(table, tables[0]);
}

TEST(UnwindTableCache, ForgetsWhatWasUsedLongestAgo) {
  // Room for two small tables.
  UnwindTableCache cache(2048);
  auto first = SyntheticModule(".debug_frame", 0, kDebugFrame);
  auto second = SyntheticModule(".debug_frame", 0, kDebugFrame);
  auto third = SyntheticModule(".debug_frame", 0, kDebugFrame);
  auto first_table = cache.Get(*first);
  auto second_table = cache.Get(*second);
  EXPECT_EQ(cache.Get(*first), first_table);
  auto third_table = cache.Get(*third);
  EXPECT_LE(cache.memory_bytes(), 2048u);
  EXPECT_EQ(cache.Get(*first), first_table);
  EXPECT_NE(cache.Get(*second), second_table);
}

TEST(UnwindTableCache, KeepsTheNewestEvenIfItIsTooBig) {
  UnwindTableCache cache(1);
  auto module = SyntheticModule(".debug_frame", 0, kDebugFrame);
  EXPECT_EQ(cache.Get(*module), cache.Get(*module));
}

}  // namespace
}  // namespace stackd
