#include "daemon/symbolize/elf_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace stackd {
namespace {

// Resident KiB of this process's mappings of the file.
uint64_t ResidentKib(const std::string& path) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  uint64_t kib = 0;
  bool is_of_file = false;
  while (std::getline(smaps, line)) {
    if (line.find('-') < line.find(' ')) is_of_file = line.ends_with(path);
    if (is_of_file && line.starts_with("Rss:")) kib += std::stoull(line.substr(4));
  }
  return kib;
}

std::vector<uint8_t> SymbolNames(const ElfFile& file) {
  auto section = file.FindSection(".strtab");
  if (!section) return {};
  auto bytes = ElfFile::RawBytes(*section);
  return {bytes.begin(), bytes.end()};
}

TEST(ElfFile, GivesThePagesThatWereReadBackAndReadsThemAgain) {
  // A copy, because the program itself is mapped anyway.
  std::string path = testing::TempDir() + "elf_file_test_copy";
  std::ofstream(path, std::ios::binary) << std::ifstream("/proc/self/exe", std::ios::binary).rdbuf();
  auto file = ElfFile::OpenFd(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  ASSERT_NE(file, nullptr);
  std::vector<uint8_t> before = SymbolNames(*file);
  ASSERT_FALSE(before.empty());
  EXPECT_GE(ResidentKib(path) * 1024, before.size());
  file->ReleasePages();
  EXPECT_EQ(ResidentKib(path), 0u);
  EXPECT_EQ(SymbolNames(*file), before);
}

}  // namespace
}  // namespace stackd
