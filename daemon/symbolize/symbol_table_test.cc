#include "daemon/symbolize/symbol_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "daemon/symbolize/test_programs.h"

namespace stackd {
namespace {

class SymbolTableTest : public testing::Test {
 protected:
  // Assembles `text` at svma 0x1000 and reads its symbols.
  void Assemble(const std::string& text) {
    WriteFile("a.s", ".text\n" + text + "\n");
    RunCommand("as -o a.o a.s && ld -Ttext=0x1000 -e 0x1000 -o a a.o");
    file_ = ElfFile::OpenFd(Fd(open((TestFolder() + "/a").c_str(), O_RDONLY | O_CLOEXEC)));
    ASSERT_NE(file_, nullptr);
    table_ = SymbolTable::Read(*file_);
  }
  std::string At(uint64_t svma) {
    auto match = table_.Find(svma);
    return match ? std::string(match->name) : "";
  }

  std::unique_ptr<ElfFile> file_;
  SymbolTable table_;
};

TEST_F(SymbolTableTest, ASizedSymbolEndsWhereItSays) {
  Assemble("f: .zero 16\n.size f, 8\n");
  EXPECT_EQ(At(0x0fff), "");
  EXPECT_EQ(At(0x1000), "f");
  EXPECT_EQ(At(0x1007), "f");
  EXPECT_EQ(At(0x1008), "");
}

TEST_F(SymbolTableTest, ASymbolWithoutASizeReachesToTheNext) {
  Assemble("f: .zero 16\ng: .zero 16\n.size g, 8\n");
  EXPECT_EQ(At(0x100f), "f");
  EXPECT_EQ(At(0x1010), "g");
  EXPECT_EQ(At(0x1018), "") << "f is not tried across g";
}

TEST_F(SymbolTableTest, ALabelInsideAFunctionDoesNotHideIt) {
  Assemble("f: .zero 8\ninner: .zero 8\n.size f, 16\n");
  EXPECT_EQ(At(0x1008), "f");
}

TEST_F(SymbolTableTest, OfAliasesTheLastInTheAlphabetIsTaken) {
  Assemble("b:\n.globl a\na:\nc: .zero 8\n.size a, 8\n.size b, 8\n.size c, 8\n");
  EXPECT_EQ(At(0x1004), "c");
}

TEST_F(SymbolTableTest, AVersionIsNoPartOfAName) {
  Assemble("\"wait@@LIB_1\": .zero 8\n");
  EXPECT_EQ(At(0x1000), "wait");
}

TEST_F(SymbolTableTest, ASymbolOfAnotherSectionIsNotTaken) {
  Assemble("f: .zero 8\n.section .other,\"ax\"\n.zero 8\n");
  EXPECT_EQ(At(0x1004), "f");
  EXPECT_EQ(At(0x1008), "") << "the other section begins here";
}

TEST_F(SymbolTableTest, AVariableIsFoundByAnyOfItsBytes) {
  Assemble(".zero 8\n.bss\nv: .zero 8\n.size v, 8\nw: .zero 8\n.size w, 4\n");
  const auto bss = file_->FindSection(".bss");
  ASSERT_TRUE(bss);
  EXPECT_EQ(At(bss->header.sh_addr), "v");
  EXPECT_EQ(At(bss->header.sh_addr + 7), "v");
  EXPECT_EQ(At(bss->header.sh_addr + 8), "w");
  EXPECT_EQ(At(bss->header.sh_addr + 12), "") << "it ends there";
}

TEST_F(SymbolTableTest, ALabelInDataIsNoVariable) {
  Assemble(".zero 8\n.data\nd: .zero 8\n");
  EXPECT_TRUE(table_.empty());
}

TEST_F(SymbolTableTest, WhatCannotBeWrittenIsNoVariable) {
  Assemble(".zero 8\n.section .rodata\nd: .zero 8\n.size d, 8\n");
  EXPECT_TRUE(table_.empty());
}

}  // namespace
}  // namespace stackd
