#include "daemon/fingerprint/fingerprint.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace stackd {
namespace {

std::string FingerprintOf(const std::vector<std::string>& functions) {
  v1::Stack stack;
  for (const std::string& function : functions) {
    v1::Frame* frame = stack.add_frames();
    frame->set_function(function);
    frame->set_module("m");
    frame->set_address("0x1");
    frame->set_module_offset("0x1");
  }
  return Fingerprint(stack);
}

TEST(Fingerprint, IsThirtyTwoHexDigitsThatStayTheSameForEver) {
  // Stored dumps are compared with later ones: change the rule's version with anything that changes this.
  EXPECT_EQ(FingerprintOf({"f", "main"}), "a4fd76793b1b060f63fa10c1f3e906d9");
}

TEST(Fingerprint, IgnoresWhatCompilersAppendToNames) {
  const std::string plain = FingerprintOf({"foo::bar(int)"});
  for (const char* clone : {"foo::bar(int) [clone .constprop.0]", "foo::bar(int) [clone .isra.0] [clone .part.12]",
                            "foo::bar(int) [clone .cold]"}) {
    EXPECT_EQ(FingerprintOf({clone}), plain) << clone;
  }
  const std::string c = FingerprintOf({"foo"});
  for (const char* clone :
       {"foo.constprop.0", "foo.isra.3", "foo.part.0", "foo.cold", "foo.part.0.cold", "foo.lto_priv.0"}) {
    EXPECT_EQ(FingerprintOf({clone}), c) << clone;
  }
  EXPECT_EQ(FingerprintOf({"core::fmt::write::h0123456789abcdef"}), FingerprintOf({"core::fmt::write"}));
}

TEST(Fingerprint, KeepsWhatMakesAFunctionAnother) {
  const std::vector<std::vector<std::string>> different = {{},
                                                           {"f"},
                                                           {"f", "g"},
                                                           {"g", "f"},
                                                           {"fg"},
                                                           {"f(int)"},
                                                           {"f(long)"},
                                                           {"f<int>"},
                                                           {"f.1"},
                                                           {"f.func1"},
                                                           {"f.cold2"},
                                                           {"x::h0123"},
                                                           {"f", "f"},
                                                           {"cold"},
                                                           {"f[clone]"},
                                                           {"main.f"},
                                                           {"f(T) [with T = int]"},
                                                           {"x::h0123456789abcdeg"}};
  std::set<std::string> fingerprints;
  for (const auto& functions : different)
    EXPECT_TRUE(fingerprints.insert(FingerprintOf(functions)).second) << functions.back();
}

TEST(Fingerprint, TellsUnknownFunctionsApartByTheirPlace) {
  const auto unknown = [](const char* module, const char* offset, const char* address) {
    v1::Stack stack;
    v1::Frame* frame = stack.add_frames();
    frame->set_module(module);
    frame->set_module_offset(offset);
    frame->set_address(address);
    return Fingerprint(stack);
  };
  EXPECT_EQ(unknown("a.so", "0x1", "0x7001"), unknown("a.so", "0x1", "0x8001")) << "wherever it was loaded";
  EXPECT_NE(unknown("a.so", "0x1", "0x7001"), unknown("a.so", "0x2", "0x7001"));
  EXPECT_NE(unknown("a.so", "0x1", "0x7001"), unknown("b.so", "0x1", "0x7001"));
  EXPECT_NE(unknown("[anon]", "", "0x7001"), unknown("[anon]", "", "0x7002"));
}

}  // namespace
}  // namespace stackd
