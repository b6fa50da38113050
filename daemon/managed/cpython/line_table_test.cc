#include "daemon/managed/cpython/line_table.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace stackd {
namespace {

// One function, as each version compiled it: its table, and the line of the first byte of each piece of its code. The lines
// are those of dis.findlinestarts() (to 3.9) or co_lines(). Line 0: none.
struct Compiled {
  uint32_t version;
  uint32_t first_line;
  int64_t code_bytes;
  std::string table_hex;
  std::vector<std::pair<int64_t, int32_t>> pieces;
};

const std::vector<Compiled>& AllCompiled() {
  static const auto* all = new std::vector<Compiled>{
      // 3.8.18
      {0x308,
       2,
       142,
       "000216020401020102ff020106ff080210010201020102010afd1a05067f0016040108000a01",
       {{0, 4},
        {22, 6},
        {26, 7},
        {28, 8},
        {30, 7},
        {32, 8},
        {38, 7},
        {46, 9},
        {62, 10},
        {64, 11},
        {66, 12},
        {68, 13},
        {78, 10},
        {104, 15},
        {110, 164},
        {114, 165},
        {132, 166}}},
      // 3.9.18
      {0x309,
       2,
       148,
       "000216020401020102ff020106ff08020e010201020102010afd1c050c7f001604011201",
       {{0, 4},
        {22, 6},
        {26, 7},
        {28, 8},
        {30, 7},
        {32, 8},
        {38, 7},
        {46, 9},
        {60, 10},
        {62, 11},
        {64, 12},
        {66, 13},
        {76, 10},
        {104, 15},
        {116, 164},
        {120, 165},
        {138, 166}}},
      // 3.10.13
      {0x30a,
       2,
       150,
       "160204020201020102ff060108ff0e020201020102010a0110fd088002ff02800c06007f0416100104ff0a02",
       {{0, 4},   {22, 6},  {26, 7}, {28, 8},  {30, 7},  {32, 8},   {38, 7},    {46, 9},    {60, 10},   {62, 11},  {64, 12},
        {66, 13}, {76, 10}, {92, 0}, {100, 9}, {102, 0}, {104, 15}, {116, 164}, {120, 165}, {136, 164}, {140, 166}}},
      // 3.11.7
      {0x30b,
       2,
       230,
       "f8f88000e00826d00826d00826d008269545982191489448d00826d10826d408268041f00409050ed80d0ed80d0ef103010e"
       "0fd8131490719135f103010d1a88018801f8e50b1cf000040517f000040517f000040517dd0c0dd80c0dd80c0dd80c158849"
       "88498849f107030d17f400030d17880188018801880188018801f8f8f8f8f003040517f8f8f8f00c000d0e88018801f88841"
       "88018805880588058805f06a04000b0cf000010517d808098851890688019001905191069001f003000b0cf000010517e00b"
       "0c886190118837804e",
       {{0, 0},   {4, 2},    {6, 4},    {60, 6},   {62, 7},    {64, 8},    {66, 7},    {70, 8},   {78, 7},
        {86, 0},  {88, 9},   {106, 10}, {118, 11}, {120, 12},  {122, 13},  {130, 10},  {156, 0},  {164, 9},
        {166, 0}, {172, 15}, {178, 0},  {180, 15}, {192, 164}, {196, 165}, {216, 164}, {220, 166}}},
      // 3.12.1
      {0x30c,
       2,
       234,
       "f88000e4141998219348d608268871a001a041a3058a11d208268041f00409050ed80d0ed80d0ef103010e0fd81314907191"
       "35f103010d1a8801f010000d0e8801f16a04000b0cd808098851890688019001905191069001f203000b0ce00b0c88619011"
       "8837804ef9f24505000927f8f40a000c1df200040517dc0c0dd80c0dd80c0ddb0c15f307030d178d01fbf003040517fbf00c"
       "000d0e8901fa",
       {{0, 0},    {2, 2},    {4, 4},     {66, 6},    {68, 7},  {70, 8},  {72, 7},   {76, 8},  {84, 7},   {90, 15},
        {94, 164}, {98, 165}, {118, 164}, {124, 166}, {134, 0}, {138, 4}, {144, 0},  {146, 9}, {162, 10}, {172, 11},
        {174, 12}, {176, 13}, {184, 10},  {204, 0},   {212, 9}, {214, 0}, {222, 15}, {228, 0}}},
      // 3.13.0
      {0x30d,
       2,
       260,
       "f88000e4141998219448d3082691488871a041a1058f119148d108268041f00409050ed80d0ed80d0ef103010e0fd8131491"
       "35f103010d1a8801f010000d0e8801f66a04000b0cd80809885189068801905191069001f703000b0c8821e00b0c88618837"
       "804ef9f24505000927f8f40a000c1df300040517dc0c0dd80c0dd80c0ddc0c15f307030d178d01fbf003040517fbf00c000d"
       "0e8901fa",
       {{0, 0},    {2, 2},     {4, 4},     {72, 6},    {74, 7},  {76, 8},  {78, 7},   {82, 8},  {88, 7},   {94, 15},
        {98, 164}, {112, 165}, {130, 164}, {148, 166}, {156, 0}, {160, 4}, {166, 0},  {168, 9}, {186, 10}, {196, 11},
        {198, 12}, {200, 13},  {210, 10},  {230, 0},   {238, 9}, {240, 0}, {248, 15}, {254, 0}}},
  };
  return *all;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(LineTable, GivesEachByteOfCodeTheLineThatThePythonWhichCompiledItGives) {
  for (const Compiled& code : AllCompiled()) {
    const std::string table = FromHex(code.table_hex);
    size_t piece = 0;
    for (int64_t position = 0; position < code.code_bytes; ++position) {
      while (piece + 1 < code.pieces.size() && code.pieces[piece + 1].first <= position) ++piece;
      const int32_t line = code.pieces[piece].second;
      const int32_t expected = line == 0 ? static_cast<int32_t>(code.first_line) : line;
      ASSERT_EQ(LineOf(code.version, code.first_line, table, position), expected)
          << "at " << position << " of version " << std::hex << code.version;
    }
  }
}

TEST(LineTable, BeforeTheFirstInstructionAFunctionIsAtItsFirstLine) {
  for (const Compiled& code : AllCompiled()) EXPECT_EQ(LineOf(code.version, 7, FromHex(code.table_hex), -2), 7);
}

TEST(LineTable, ATableThatEndsEarlyOrIsGarbageGivesALine) {
  for (const Compiled& code : AllCompiled()) {
    std::string table = FromHex(code.table_hex);
    for (size_t size = 0; size <= table.size(); ++size) {
      EXPECT_GT(LineOf(code.version, 7, std::string_view(table).substr(0, size), code.code_bytes), 0);
    }
    for (int byte = 0; byte < 256; ++byte) {
      EXPECT_GT(LineOf(code.version, 7, std::string(300, static_cast<char>(byte)), 20'000), 0);
    }
  }
}

TEST(LineTable, AFirstLineThatIsNoneGivesNone) {
  for (const uint32_t version : {0x308u, 0x30au, 0x30bu}) {
    EXPECT_EQ(LineOf(version, 0x80000000, "", 0), 0);
    EXPECT_EQ(LineOf(version, 0xffffffff, "", -1), 0);
  }
}

}  // namespace
}  // namespace stackd
