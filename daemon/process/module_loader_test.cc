#include "daemon/process/module_loader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/fd.h"

namespace stackd {
namespace {

using testing::Contains;
using testing::HasSubstr;

// A copy of this process that does nothing until it is killed.
class Copy {
 public:
  Copy() : pid_(fork()) {
    if (pid_ != 0) return;
    for (;;) pause();
  }
  ~Copy() { End(); }

  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  ProcessFiles Files() const {
    ProcessFiles files = FilesWithoutMemory();
    Fd memory = OpenFile("mem");
    EXPECT_TRUE(files.SetMemory(&memory));
    return files;
  }

  ProcessFiles FilesWithoutMemory() const {
    ProcessFiles files;
    Fd maps = OpenFile("maps");
    EXPECT_TRUE(files.SetMaps(&maps));
    return files;
  }

 private:
  Fd OpenFile(const std::string& name) const {
    return Fd(open(("/proc/" + std::to_string(pid_) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  }

  pid_t pid_;
};

Result<std::vector<uint8_t>> NoImage(uint64_t, uint64_t, int64_t) { return Error(Code::kUnavailable, "not shared"); }

std::vector<std::optional<Fd>> OpenAll(const std::vector<std::string>& paths) {
  std::vector<std::optional<Fd>> fds;
  for (const std::string& path : paths) fds.emplace_back(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  return fds;
}

// A process that has an answer for each path, and none of the files.
std::vector<std::optional<Fd>> NoFiles(const std::vector<std::string>& paths, int64_t) {
  std::vector<std::optional<Fd>> fds(paths.size());
  for (auto& fd : fds) fd.emplace();
  return fds;
}

class ModuleLoaderTest : public testing::Test {
 protected:
  Copy process_;
  const ProcessFiles files_ = process_.Files();
  ModuleCache cache_;
  std::vector<std::string> notes_;
};

TEST_F(ModuleLoaderTest, HasAllFilesThatTheProcessPasses) {
  ModuleLoader loader(&files_, &cache_, "", [](const auto& paths, int64_t) { return OpenAll(paths); }, NoImage);
  ASSERT_TRUE(loader.Load(MonotonicNs() + 60 * kNsPerSecond, &notes_));
  EXPECT_FALSE(loader.awaits_files());
  EXPECT_THAT(notes_, testing::IsEmpty());
}

TEST_F(ModuleLoaderTest, AwaitsFilesOfAProcessThatEndsBeforeTheyAreCompared) {
  ModuleLoader loader(
      &files_, &cache_, "",
      [this](const auto& paths, int64_t) {
        process_.End();
        return OpenAll(paths);
      },
      NoImage);
  ASSERT_TRUE(loader.Load(MonotonicNs() + 60 * kNsPerSecond, &notes_));
  EXPECT_TRUE(loader.awaits_files());
  EXPECT_THAT(notes_, Contains(HasSubstr("could not be had")));
}

TEST_F(ModuleLoaderTest, AwaitsNoFileThatALivingProcessDoesNotHave) {
  ModuleLoader loader(&files_, &cache_, "", NoFiles, NoImage);
  ASSERT_TRUE(loader.Load(MonotonicNs() + 60 * kNsPerSecond, &notes_));
  EXPECT_FALSE(loader.awaits_files());
}

TEST_F(ModuleLoaderTest, AwaitsWhatItHadNoTimeToAskFor) {
  const ProcessFiles files = process_.FilesWithoutMemory();
  ModuleLoader loader(&files, &cache_, "", NoFiles, NoImage);
  ASSERT_TRUE(loader.Load(MonotonicNs(), &notes_));
  EXPECT_TRUE(loader.awaits_files());
}

}  // namespace
}  // namespace stackd
