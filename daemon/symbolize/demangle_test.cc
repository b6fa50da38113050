#include "daemon/symbolize/demangle.h"

#include <gtest/gtest.h>

namespace stackd {
namespace {

std::string Kept(std::string_view name) { return Demangle(name, ReturnType::kKeep); }
std::string Dropped(std::string_view name) { return Demangle(name, ReturnType::kDrop); }

TEST(Demangle, LeavesPlainNamesAsTheyAre) {
  EXPECT_EQ(Kept("main"), "main");
  EXPECT_EQ(Kept(""), "");
  EXPECT_EQ(Kept("_Z?"), "_Z?");
  EXPECT_EQ(Kept("main.cold"), "main.cold");
}

TEST(Demangle, GivesCppNamesWithTheirParameters) {
  EXPECT_EQ(Kept("_ZN2ns1f1gEv"), "ns::f::g()");
  EXPECT_EQ(Kept("_ZN12_GLOBAL__N_11fEi"), "(anonymous namespace)::f(int)");
  EXPECT_EQ(Kept("_Z1fi.part.0"), "f(int) [clone .part.0]");
}

TEST(Demangle, DropsTheReturnTypeOnlyWhenAsked) {
  EXPECT_EQ(Kept("_Z3sumIiEiT_"), "int sum<int>(int)");
  EXPECT_EQ(Dropped("_Z3sumIiEiT_"), "sum<int>(int)");
}

TEST(Demangle, SpellsStandardStringsOutAsGdbDoes) {
  EXPECT_EQ(Kept("_Z1fSs"), "f(std::basic_string<char, std::char_traits<char>, std::allocator<char> >)");
}

TEST(Demangle, KnowsBothManglingsOfRust) {
  EXPECT_EQ(Kept("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
  EXPECT_EQ(Kept("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE"),
            "<Test + 'static as foo::Bar<Test>>::bar");
  EXPECT_EQ(Kept("_RNvC6_123foo3bar"), "123foo::bar");
}

// Mangled by rustc 1.95.
TEST(Demangle, KnowsCharactersThatAreNotAscii) {
  EXPECT_EQ(Kept("_ZN10situations9na$uef$ve13gr$uf6$$udf$e17h4d186d403e2b419aE"), "situations::naïve::größe");
  EXPECT_EQ(Kept("_RNvNtCs2YYheBcuhYO_10situationsu8nave_6pau9gre_6ka8i"), "situations::naïve::größe");
}

TEST(LanguageOfName, IsToldByTheMangling) {
  EXPECT_EQ(LanguageOfName("_RNvC6_123foo3bar"), Language::kRust);
  EXPECT_EQ(LanguageOfName("_ZN4core3fmt5write17h0123456789abcdefE"), Language::kRust);
  EXPECT_EQ(LanguageOfName("_ZN4core3fmt5write17h0123456789abcdefE.llvm.1234"), Language::kRust);
  EXPECT_EQ(LanguageOfName("_ZN3app17hello_world_17h_hE"), Language::kCpp);
  EXPECT_EQ(LanguageOfName("_ZN17h0123456789abcdefEv"), Language::kCpp) << "a function of a class with such a name";
  EXPECT_EQ(LanguageOfName("_ZN17h0123456789abcde"), Language::kCpp) << "cut";
  EXPECT_EQ(LanguageOfName("_ZN2ns1f1gEv"), Language::kCpp);
  EXPECT_EQ(LanguageOfName("main"), Language::kUnknown);
  EXPECT_EQ(LanguageOfName(""), Language::kUnknown);
}

TEST(Demangle, LeavesNamesThatAreTooLongMangled) {
  std::string name = "_Z1f" + std::string(kMaxMangledBytes, 'i');
  EXPECT_EQ(Kept(name), name);
  std::string longer = "_Z1f" + std::string(2 * kMaxNameBytes, 'i');
  EXPECT_EQ(Kept(longer).size(), kMaxNameBytes);
}

// Each parameter is a pair of two of the one before: 2^30 pairs in the last one.
TEST(Demangle, CutsNamesThatGrowWithoutEnd) {
  std::string name = "_Z1fSt4pairIiiE";
  std::string substitution = "S_";
  const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (int i = 0; i < 30; ++i) {
    std::string last = std::string("S") + digits[i] + "_";
    name += "S_I" + last + last + "E";
  }
  EXPECT_EQ(Kept(name).size(), kMaxNameBytes);
}

}  // namespace
}  // namespace stackd
