// Every way in which compilers, linkers and packagers store symbols and debug data. Inline depth, names and lines of every
// byte of code are compared with llvm-symbolizer on the plain file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/text.h"
#include "daemon/symbolize/debug_folders.h"
#include "daemon/symbolize/module_symbols.h"
#include "daemon/symbolize/test_programs.h"

namespace stackd {
namespace {

using testing::HasSubstr;

constexpr uint64_t kImageLimitBytes = 64 << 20;

struct Agreement {
  double depth = 0;
  double names = 0;
  double lines = 0;
};

bool SameName(const std::string& ours, const std::string& theirs) {
  if (theirs.starts_with("_Z")) return true;  // LLVM 14 cannot demangle every name of gcc 12
  std::string a = BareName(ours), b = BareName(theirs);
  // For functions without a name for the linker llvm-symbolizer gives the last part only.
  return a == b || a.ends_with("::" + b);
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

DebugFiles DebugFilesIn(const std::vector<std::string>& dirs) {
  return DebugFiles(dirs, [folders = DebugFolders(dirs)](size_t folder, const std::string& relative_path) {
    return folders.Open(folder, relative_path);
  });
}

class Formats : public testing::Test {
 protected:
  static void SetUpTestSuite() { WriteFile("sample.cc", SampleSource()); }

  // Compiles the sample with `flags` to `name`.
  static std::string Build(const std::string& name, const std::string& flags) {
    RunCommand("g++ -std=c++14 -O2 -o " + name + " " + flags + " sample.cc 2>&1");
    return TestFolder() + "/" + name;
  }

  static ModuleSymbols Open(const std::string& path, const DebugFiles& debug_files) {
    return ModuleSymbols(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), path, &debug_files, kImageLimitBytes);
  }

  // How `file` (with `debug_files`) agrees with what llvm-symbolizer says about `plain`.
  Agreement Compare(const std::string& file, const DebugFiles& debug_files, const std::string& plain) {
    std::vector<uint64_t> svmas = TextAddresses(plain);
    Oracle oracle = AskLlvmSymbolizer(plain, svmas);
    ModuleSymbols symbols = Open(file, debug_files);
    Agreement agreement;
    std::string examples;
    for (size_t i = 0; i < svmas.size(); ++i) {
      SourceLocation location = symbols.Locate(svmas[i]);
      for (const SourceFrame& frame : location.frames) {
        EXPECT_TRUE(frame.line == 0 || frame.language == Language::kCpp) << frame.function;
      }
      // Padding between functions.
      if (oracle[i].size() == 1 && oracle[i][0].function.empty() && oracle[i][0].line == 0) oracle[i].clear();
      bool same_depth = location.frames.size() == oracle[i].size();
      bool same_names = same_depth, same_lines = same_depth;
      for (size_t k = 0; same_depth && k < oracle[i].size(); ++k) {
        same_names = same_names && SameName(location.frames[k].function, oracle[i][k].function);
        same_lines = same_lines && location.frames[k].line == oracle[i][k].line &&
                     (oracle[i][k].line == 0 || BaseName(location.frames[k].file) == BaseName(oracle[i][k].file));
      }
      agreement.depth += same_depth;
      agreement.names += same_names;
      agreement.lines += same_lines;
      if ((!same_names || !same_lines) && examples.size() < 1000) {
        examples += "\n" + HexOfBytes({reinterpret_cast<const char*>(&svmas[i]), 4}) + " ours:";
        for (const SourceFrame& frame : location.frames)
          examples += " " + frame.function + "@" + std::to_string(frame.line);
        examples += " llvm:";
        for (const SourceFrame& frame : oracle[i]) examples += " " + frame.function + "@" + std::to_string(frame.line);
      }
    }
    agreement.depth /= svmas.size();
    agreement.names /= svmas.size();
    agreement.lines /= svmas.size();
    EXPECT_GE(agreement.depth, 0.999);
    EXPECT_GE(agreement.names, 0.999) << examples;
    EXPECT_GE(agreement.lines, 0.999) << examples;
    EXPECT_EQ(symbols.quality(), SymbolQuality::kDwarf);
    return agreement;
  }

  void ExpectAgreement(const std::string& file) { Compare(file, no_debug_files_, file); }

  // The function names that the stripped `file` still yields, of all that `plain` has.
  void ExpectNames(const std::string& file, const std::string& plain, SymbolQuality quality, const std::string& reason) {
    ModuleSymbols reference = Open(plain, no_debug_files_);
    ModuleSymbols symbols = Open(file, no_debug_files_);
    size_t checked = 0;
    for (uint64_t svma : TextAddresses(plain, 7)) {
      SourceLocation expected = reference.Name(svma);
      SourceLocation actual = symbols.Locate(svma);
      if (expected.frames.empty()) continue;
      ASSERT_EQ(actual.frames.size(), 1u) << std::hex << svma;
      EXPECT_EQ(actual.frames[0].function, expected.frames[0].function);
      EXPECT_EQ(actual.frames[0].line, 0);
      EXPECT_THAT(actual.unnamed_reason, HasSubstr(reason));
      checked++;
    }
    EXPECT_GT(checked, 100u);
    EXPECT_EQ(symbols.quality(), quality);
  }

  // Moves the debug data of `plain` to a file in a build-id folder below `dir`, and returns the stripped rest.
  static std::string Split(const std::string& plain, const std::string& dir) {
    RunCommand("id=$(readelf -n " + plain + " | sed -n 's/.*Build ID: //p'); mkdir -p " + dir +
               "/.build-id/${id%${id#??}}; " + "objcopy --only-keep-debug " + plain + " " + dir +
               "/.build-id/${id%${id#??}}/${id#??}.debug; " + "strip -o " + plain + ".stripped " + plain);
    return plain + ".stripped";
  }

  const DebugFiles no_debug_files_ = DebugFilesIn({TestFolder() + "/none"});
};

TEST_F(Formats, Dwarf4) { ExpectAgreement(Build("dwarf4", "-g -gdwarf-4")); }
TEST_F(Formats, Dwarf5) { ExpectAgreement(Build("dwarf5", "-g -gdwarf-5")); }
TEST_F(Formats, LinesAndFunctionsOnly) { ExpectAgreement(Build("g1", "-g1")); }
TEST_F(Formats, WithoutOptimization) { ExpectAgreement(Build("o0", "-O0 -g")); }
TEST_F(Formats, NotPositionIndependent) { ExpectAgreement(Build("nopie", "-g -no-pie")); }
TEST_F(Formats, LinkTimeOptimization) { ExpectAgreement(Build("lto", "-g -flto")); }
TEST_F(Formats, TypeUnits) { ExpectAgreement(Build("types", "-g -fdebug-types-section")); }
TEST_F(Formats, FunctionSectionsThatTheLinkerDiscards) {
  ExpectAgreement(Build("sections", "-g -ffunction-sections -Wl,--gc-sections"));
}
TEST_F(Formats, WithoutAranges) {
  std::string plain = Build("aranges", "-g");
  RunCommand("objcopy --remove-section .debug_aranges aranges noaranges");
  Compare(TestFolder() + "/noaranges", no_debug_files_, plain);
}
TEST_F(Formats, Gold) {
  if (!HaveTool("ld.gold")) GTEST_SKIP() << "no ld.gold (binutils)";
  ExpectAgreement(Build("gold", "-g -fuse-ld=gold"));
}

TEST_F(Formats, CompressedInEveryWay) {
  std::string plain = Build("plain", "-g");
  for (std::string way : {"zlib-gabi", "zlib-gnu", "zstd"}) {
    SCOPED_TRACE(way);
    if (way == "zstd" && !HaveTool("objcopy --compress-debug-sections=zstd plain /dev/null; command -v true")) continue;
    RunCommand("objcopy --compress-debug-sections=" + way + " plain packed-" + way);
    EXPECT_LT(ReadFile(TestFolder() + "/packed-" + way).size(), ReadFile(plain).size()) << "not compressed";
    Compare(TestFolder() + "/packed-" + way, no_debug_files_, plain);
  }
}

TEST_F(Formats, DebugFileByBuildId) {
  std::string plain = Build("byid", "-g");
  std::string stripped = Split(plain, "debug");
  Compare(stripped, DebugFilesIn({TestFolder() + "/missing", TestFolder() + "/debug"}), plain);
}

TEST_F(Formats, DebugFileOfAnotherBuildIsNotTaken) {
  std::string plain = Build("wrongid", "-g");
  std::string stripped = Split(plain, "wrong");
  Build("other", "-g -DOTHER=1 -O1");
  RunCommand("objcopy --only-keep-debug other $(find wrong -name '*.debug')");
  DebugFiles debug_files = DebugFilesIn({TestFolder() + "/wrong"});
  SourceLocation location = Open(stripped, debug_files).Locate(TextAddresses(plain).front());
  EXPECT_TRUE(location.frames.empty());
  EXPECT_THAT(location.unnamed_reason,
              testing::MatchesRegex("no symbols: build-id [0-9a-f]{40} was not found in .*/wrong"));
}

TEST_F(Formats, DebugFileByDebugLinkAndChecksum) {
  std::string plain = Build("linked", "-g -Wl,--build-id=none");
  RunCommand(
      "mkdir -p links$PWD; objcopy --only-keep-debug linked links$PWD/linked.debug; "
      "strip -o linked.stripped linked; objcopy --add-gnu-debuglink=links$PWD/linked.debug linked.stripped");
  DebugFiles debug_files = DebugFilesIn({TestFolder() + "/links"});
  Compare(TestFolder() + "/linked.stripped", debug_files, plain);

  RunCommand("printf x >> links$PWD/linked.debug");
  SourceLocation location = Open(TestFolder() + "/linked.stripped", debug_files).Locate(TextAddresses(plain).front());
  EXPECT_THAT(location.unnamed_reason, HasSubstr("no build-id")) << "the checksum does not match any more";
}

TEST_F(Formats, DebugLinkNeverLeadsOutOfTheFolders) {
  std::string plain = Build("outside", "-g -Wl,--build-id=none");
  RunCommand(
      "mkdir -p jail; objcopy --only-keep-debug outside outside.debug; strip -o outside.stripped outside; "
      "objcopy --add-gnu-debuglink=outside.debug outside.stripped");
  DebugFiles debug_files = DebugFilesIn({TestFolder() + "/jail"});
  for (std::string path : {"/../outside.stripped", "/x/../../outside.stripped", "outside.stripped"}) {
    ModuleSymbols symbols(Fd(open((TestFolder() + "/outside.stripped").c_str(), O_RDONLY)), path, &debug_files,
                          kImageLimitBytes);
    symbols.Locate(TextAddresses(plain).front());
    EXPECT_NE(symbols.quality(), SymbolQuality::kDwarf) << path;
  }
}

TEST_F(Formats, NamesPartlyInADwzFile) {
  if (!HaveTool("dwz")) GTEST_SKIP() << "no dwz";
  std::string plain = Build("dwzplain", "-g");
  RunCommand(
      "cp dwzplain dwz1; cp dwzplain dwz2; printf 'int f(){return 1;} int main(){return f();}' > tiny.cc; "
      "mkdir -p common/.dwz; dwz -m common/.dwz/all.debug dwz1 dwz2");
  ASSERT_THAT(RunCommand("readelf -SW dwz1"), HasSubstr(".gnu_debugaltlink"));
  Compare(TestFolder() + "/dwz1", DebugFilesIn({TestFolder() + "/common"}), plain);

  // Without the common file: what is there, and why the rest is not.
  ModuleSymbols symbols = Open(TestFolder() + "/dwz1", no_debug_files_);
  size_t explained = 0;
  for (uint64_t svma : TextAddresses(plain, 16))
    explained += symbols.Locate(svma).unnamed_reason.find("dwz") != std::string::npos;
  EXPECT_GT(explained, 0u);
}

TEST_F(Formats, MiniDebugInfo) {
  std::string plain = Build("mini", "-g -rdynamic");
  RunCommand(
      "objcopy --only-keep-debug mini mini.debug && objcopy -S --remove-section .comment mini.debug mini.syms || true; "
      "strip -o mini.symtab -g mini; objcopy --only-keep-debug mini.symtab mini.syms; xz -kf mini.syms; "
      "strip -o mini.stripped mini; objcopy --add-section .gnu_debugdata=mini.syms.xz mini.stripped");
  ExpectNames(TestFolder() + "/mini.stripped", plain, SymbolQuality::kMiniDebugInfo, "no lines: build-id");
}

TEST_F(Formats, SymbolTableWithoutDebugData) {
  std::string plain = Build("nodebug", "");
  ExpectNames(plain, plain, SymbolQuality::kSymtab, "no lines: build-id");
}

TEST_F(Formats, StrippedSharedObjectHasItsExportedNames) {
  Build("exported", "-rdynamic");
  RunCommand("strip exported");
  DebugFiles none = DebugFilesIn({});
  ModuleSymbols symbols = Open(TestFolder() + "/exported", none);
  uint64_t svma = strtoull(RunCommand("nm -D exported | sed -n 's/ T plain_c$//p'").c_str(), nullptr, 16);
  SourceLocation location = symbols.Name(svma);
  ASSERT_EQ(location.frames.size(), 1u);
  EXPECT_EQ(location.frames[0].function, "plain_c");
  EXPECT_EQ(symbols.quality(), SymbolQuality::kDynsym);
}

// The .dwo file lies at a path that the file states: it is not opened. What is in the file itself is still given.
TEST_F(Formats, SplitDwarfHasLinesAndTheNamesOfTheSymbolTable) {
  std::string plain = Build("whole", "-g -gdwarf-5 -fno-inline");
  std::string split = Build("split", "-g -gdwarf-5 -fno-inline -gsplit-dwarf");
  std::vector<uint64_t> svmas = TextAddresses(split, 5);
  Oracle oracle = AskLlvmSymbolizer(split, svmas);
  ModuleSymbols symbols = Open(split, no_debug_files_);
  for (size_t i = 0; i < svmas.size(); ++i) {
    SourceLocation location = symbols.Locate(svmas[i]);
    if (oracle[i].empty() || location.frames.empty()) continue;
    EXPECT_EQ(location.frames.back().line, oracle[i].front().line) << std::hex << svmas[i];
    ASSERT_TRUE(SameName(location.frames.back().function, oracle[i].back().function))
        << location.frames.back().function << " " << oracle[i].back().function;
  }
}

TEST_F(Formats, LambdasAreNamedWithTheFunctionAroundThem) {
  std::string plain = Build("lambda", "-g");
  ModuleSymbols symbols = Open(plain, no_debug_files_);
  bool own_frame = false, inlined = false;
  for (uint64_t svma : TextAddresses(plain)) {
    for (const SourceFrame& frame : symbols.Locate(svma).frames) {
      own_frame |= frame.function == "store::Table::Call(int) const::{lambda(int)#1}::operator()(int) const";
      inlined |= frame.inlined && frame.function == "plain_c::{lambda}::operator()";
    }
  }
  EXPECT_TRUE(own_frame);
  EXPECT_TRUE(inlined);
}

TEST_F(Formats, RustOldAndNewMangling) {
  if (!HaveTool("rustc")) GTEST_SKIP() << "no rustc";
  WriteFile("sample.rs",
            "mod inner { pub trait Area { fn area(&self) -> u64; } pub struct Square(pub u64);\n"
            "impl Area for Square { #[inline(never)] fn area(&self) -> u64 { self.0 * self.0 } } }\n"
            "use inner::Area;\n"
            "#[inline(never)] fn total<T: Area>(all: &[T]) -> u64 { all.iter().map(|a| a.area()).sum() }\n"
            "fn main() { let v: Vec<_> = (0..std::env::args().count() as u64).map(inner::Square).collect();\n"
            "  println!(\"{}\", total(&v)); }\n");
  for (std::string mangling : {"legacy", "v0"}) {
    SCOPED_TRACE(mangling);
    std::string flags = "-C symbol-mangling-version=" + mangling + (mangling == "legacy" ? " -Z unstable-options" : "");
    if (!HaveTool("rustc && RUSTC_BOOTSTRAP=1 rustc -g -O -C debuginfo=2 " + flags + " sample.rs -o rust-" + mangling))
      continue;
    DebugFiles none = DebugFilesIn({});
    ModuleSymbols symbols = Open(TestFolder() + "/rust-" + mangling, none);
    std::string names;
    for (uint64_t svma : TextAddresses(TestFolder() + "/rust-" + mangling, 64)) {
      for (const SourceFrame& frame : symbols.Locate(svma).frames) {
        if (frame.function.find("sample") != std::string::npos) names += frame.function + "\n";
        EXPECT_EQ(frame.function.find("17h"), std::string::npos) << frame.function;
        EXPECT_FALSE(frame.function.starts_with("_R")) << frame.function;
      }
    }
    EXPECT_THAT(names, HasSubstr("sample::main"));
    EXPECT_THAT(names, HasSubstr("sample::total"));
  }
}

}  // namespace
}  // namespace stackd
