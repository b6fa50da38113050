#include "daemon/resymbolize/module_finder.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "daemon/base/text.h"
#include "daemon/modules/module_stub.h"

namespace stackd {
namespace {

const std::string kBuildId = "\x01\x23\x45\x67\x89\xab\xcd\xef";
constexpr char kBuildIdHex[] = "0123456789abcdef";

class ModuleFinderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::string(testing::TempDir()) + "/finder-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // An ELF file with that build-id.
  std::string MakeFile(const std::string& name, const std::string& build_id = kBuildId) {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const auto module = MakeModuleStub(path, build_id, 0x1000, 0x2000).value();
    const auto bytes = module->Read(0, module->identity().size_bytes).value();
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return path;
  }

  // The capture of a process that has mapped `path` twice, as data and as code.
  static RawCapture RawOf(const std::string& path, const std::string& build_id = kBuildIdHex) {
    RawCapture raw;
    raw.capture.process.uid = 1000;
    std::vector<Mapping> mappings(2);
    mappings[0] = {.start_avma = 0x7000'0000,
                   .end_avma = 0x7000'1000,
                   .file_offset = 0,
                   .readable = true,
                   .writable = false,
                   .executable = false,
                   .path = path};
    mappings[1] = mappings[0];
    mappings[1].start_avma = 0x7000'1000;
    mappings[1].end_avma = 0x7000'3000;
    mappings[1].file_offset = 0x800;
    mappings[1].executable = true;
    for (Mapping& mapping : mappings) mapping.bias = 0x7000'0000;
    raw.capture.map = std::make_shared<const AddressMap>(std::move(mappings));
    raw.build_ids = {build_id, build_id};
    return raw;
  }

  static const std::shared_ptr<const Module>& CodeOf(const ModuleFinder::Found& found) {
    return found.map->mappings()[1].module;
  }

  std::string folder_;
};

TEST_F(ModuleFinderTest, TakesTheFileAtItsPathIfThatIsTheSame) {
  const std::string path = MakeFile("app");
  const auto found = ModuleFinder({}).Find(RawOf(path));
  ASSERT_NE(CodeOf(found), nullptr);
  EXPECT_TRUE(found.note.empty());
  EXPECT_EQ(CodeOf(found)->path(), path);
  EXPECT_EQ(found.map->mappings()[0].module, CodeOf(found));
  EXPECT_EQ(found.map->mappings()[1].bias, 0x7000'0000u);
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(CodeOf(found)->identity().inode, status.st_ino) << "the file itself";
  EXPECT_TRUE(ModuleFinder({}).Find(RawOf(path + " (deleted)")).note.empty()) << "put back at its place";
}

TEST_F(ModuleFinderTest, LooksInFoldersByBuildIdAndByPath) {
  MakeFile("by-id/.build-id/01/23456789abcdef");
  EXPECT_TRUE(ModuleFinder({folder_ + "/by-id"}).Find(RawOf("/no/such/app")).note.empty());
  MakeFile("by-path/opt/app");
  EXPECT_TRUE(ModuleFinder({"/nonexistent", folder_ + "/by-path"}).Find(RawOf("/opt/app")).note.empty());
}

TEST_F(ModuleFinderTest, LeavesAStubOfWhatItDoesNotFind) {
  const std::string other = MakeFile("app", "\x99\x99\x99\x99");
  const auto found = ModuleFinder({folder_}).Find(RawOf(other));
  ASSERT_NE(CodeOf(found), nullptr);
  EXPECT_EQ(found.note, "not found here: " + other + " (build-id 0123456789abcdef); a stack may end early there")
      << "another build is there";
  EXPECT_EQ(HexOfBytes(CodeOf(found)->build_id()), kBuildIdHex);
  EXPECT_EQ(CodeOf(found)->lowest_svma(), 0x1000u);
  EXPECT_EQ(CodeOf(found)->FindSection(".eh_frame"), nullptr);
}

TEST_F(ModuleFinderTest, KnowsTheFilesOfProcessesThatRunButOfTheSameUserOnly) {
  const auto module = MakeModuleStub("/in/another/container/app", kBuildId, 0x1000, 0x2000).value();
  std::vector<Mapping> mappings = RawOf("/in/another/container/app").capture.map->mappings();
  for (Mapping& mapping : mappings) mapping.module = module;
  ModuleFinder finder({});
  finder.Learn(1000, AddressMap(mappings));
  EXPECT_EQ(CodeOf(finder.Find(RawOf("/elsewhere/app"))), module);
  RawCapture of_another = RawOf("/elsewhere/app");
  of_another.capture.process.uid = 1001;
  EXPECT_NE(CodeOf(finder.Find(of_another)), module);
}

TEST_F(ModuleFinderTest, ForgetsFilesThatNobodyHoldsAnyMore) {
  ModuleFinder finder({});
  {
    std::vector<Mapping> mappings = RawOf("/app").capture.map->mappings();
    mappings[1].module = MakeModuleStub("/app", kBuildId, 0x1000, 0x2000).value();
    finder.Learn(1000, AddressMap(mappings));
  }
  EXPECT_FALSE(finder.Find(RawOf("/app")).note.empty());
}

TEST_F(ModuleFinderTest, OpensNothingButRegularFiles) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, folder_, std::string("/dev/zero"), std::string("/dev/null")}) {
    EXPECT_FALSE(ModuleFinder({folder_}).Find(RawOf(path)).note.empty()) << path;
  }
}

TEST_F(ModuleFinderTest, LeavesFilesWithoutABuildIdAlone) {
  const auto found = ModuleFinder({}).Find(RawOf(MakeFile("app"), ""));
  EXPECT_EQ(CodeOf(found), nullptr);
  EXPECT_TRUE(found.note.empty());
  const auto nonsense = ModuleFinder({}).Find(RawOf("/app", "../../etc"));
  EXPECT_EQ(CodeOf(nonsense), nullptr);
}

}  // namespace
}  // namespace stackd
