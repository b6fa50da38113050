extern "C" {
#include "agent/maps/mapped_file.h"

#include "agent/sys/private_fd.h"
}

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t kPage = 4096;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() : maps_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {
    char name[] = "/tmp/mapped_file_test.XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~MappedFileTest() override {
    close(maps_);
    std::filesystem::remove_all(folder_);
  }

  int Open(const std::string& path) const {
    const int fd = stackd_mapped_file_open(maps_, path.c_str());
    if (fd >= 0) stackd_own_fd_drop(fd);
    return fd >= 0 ? 0 : fd;
  }
  int Read(const void* at, size_t size_bytes = 16) const {
    std::vector<char> bytes(size_bytes);
    const int error = stackd_mapped_file_read(maps_, reinterpret_cast<uint64_t>(at), bytes.data(), size_bytes);
    if (error == 0) {
      EXPECT_EQ(memcmp(bytes.data(), at, size_bytes), 0);
    }
    return error;
  }
  // A file of two pages, which begins with `text`.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text << std::string(2 * kPage - text.size(), '.');
    return path;
  }
  static char* Map(const std::string& path, int protection, int flags = MAP_PRIVATE) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* memory = mmap(nullptr, kPage, protection, flags, fd, 0);
    close(fd);
    EXPECT_NE(memory, MAP_FAILED);
    return static_cast<char*>(memory);
  }

  const int maps_;
  std::string folder_;
};

void Code() {}
int data = 7;

// --- Files ---

TEST_F(MappedFileTest, OpensTheExecutableByBothOfItsNamesAndWhatIsMappedWithCode) {
  EXPECT_EQ(Open("/proc/self/exe"), 0);
  EXPECT_EQ(Open(std::filesystem::read_symlink("/proc/self/exe").string()), 0);
  const std::string path = Write("code", "a");
  Map(path, PROT_READ | PROT_EXEC);
  EXPECT_EQ(Open(path), 0);
}

TEST_F(MappedFileTest, OpensNothingElse) {
  for (const char* path : {"/etc/passwd", "/proc/self/environ", "/proc/self/mem", "/proc/self/maps", "/dev/null", "/", "",
                           "[vdso]", "[heap]"}) {
    EXPECT_EQ(Open(path), -EPERM) << path;
  }
  const std::string data_file = Write("data", "a secret");
  Map(data_file, PROT_READ);
  EXPECT_EQ(Open(data_file), -EPERM) << "mapped, without code";
}

TEST_F(MappedFileTest, OpensNoOtherFileThatLiesUnderThePathByNow) {
  const std::string path = Write("code", "a");
  Map(path, PROT_READ | PROT_EXEC);
  std::filesystem::rename(path, path + ".old");
  Write("code", "a secret");
  EXPECT_EQ(Open(path), -EPERM) << "maps shows the other name";
  // What lies on another file system under a name that maps shows is known by its content alone.
  std::filesystem::rename(path, path + ".new");
  std::filesystem::create_symlink("/etc/passwd", path);
  EXPECT_EQ(Open(path), -EPERM);
}

TEST_F(MappedFileTest, OpensNoLinkThatTookThePlaceOfTheFile) {
  const std::string path = Write("code", "a");
  Map(path, PROT_READ | PROT_EXEC);
  std::filesystem::copy_file(path, path + ".copy");
  // The path stays in maps, since the file has another name, which maps does not show.
  std::filesystem::create_hard_link(path, path + ".same");
  ASSERT_EQ(Open(path), 0);
  std::filesystem::remove(path);
  std::filesystem::create_symlink(path + ".copy", path);
  EXPECT_LT(Open(path), 0);
}

// --- Mappings ---

TEST_F(MappedFileTest, ReadsCodeAndReadOnlyDataOfFilesWithCode) {
  EXPECT_EQ(Read(reinterpret_cast<const void*>(&Code)), 0);
  EXPECT_EQ(Read("a text of this program"), 0);
  const auto* vdso = reinterpret_cast<const char*>(getauxval(AT_SYSINFO_EHDR));
  EXPECT_EQ(Read(vdso, sizeof(Elf64_Ehdr)), 0);
}

TEST_F(MappedFileTest, ReadsNothingThatTheProgramMayWriteTo) {
  const auto heap = std::make_unique<std::array<char, 64>>();
  char stack[64] = {};
  EXPECT_EQ(Read(heap.get()), -EPERM);
  EXPECT_EQ(Read(stack), -EPERM);
  EXPECT_EQ(Read(&data), -EPERM);
  const std::string path = Write("code", "a");
  Map(path, PROT_READ | PROT_EXEC);
  EXPECT_EQ(Read(Map(path, PROT_READ | PROT_WRITE)), -EPERM);
}

TEST_F(MappedFileTest, ReadsNoFileWithoutCodeAndNoSharedOrAnonymousMemory) {
  EXPECT_EQ(Read(Map(Write("data", "a secret"), PROT_READ)), -EPERM);
  const std::string code = Write("code", "a");
  Map(code, PROT_READ | PROT_EXEC);
  EXPECT_EQ(Read(Map(code, PROT_READ, MAP_SHARED)), -EPERM);
  EXPECT_EQ(Read(mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), -EPERM);
  EXPECT_EQ(Read(mmap(nullptr, kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), -EPERM)
      << "made at run time";
  char byte;
  EXPECT_EQ(stackd_mapped_file_read(maps_, 0, &byte, 1), -EPERM);
}

TEST_F(MappedFileTest, ReadsNothingBehindTheEndOfTheMapping) {
  const std::string path = Write("code", "a");
  const char* memory = Map(path, PROT_READ | PROT_EXEC);
  EXPECT_EQ(Read(memory + kPage - 16, 16), 0);
  std::vector<char> bytes(32);
  EXPECT_EQ(stackd_mapped_file_read(maps_, reinterpret_cast<uint64_t>(memory) + kPage - 16, bytes.data(), 17), -EPERM);
}

}  // namespace
