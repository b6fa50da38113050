#include "daemon/app/install_agent.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "daemon/base/fd.h"
#include "daemon/crashes/spool.h"

namespace stackd {
namespace {

// The library has a third of a megabyte; a file that is much larger is something else.
constexpr off_t kMaxAgentBytes = 64 << 20;

std::unexpected<Status> FileError(const std::string& what, const std::string& path) {
  return Error(Code::kPermissionDenied, what + " " + path + ": " + strerror(errno));
}

Result<std::string> Read(const std::string& path) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!file.valid() || fstat(file.get(), &status) != 0) return FileError("cannot read", path);
  if (!S_ISREG(status.st_mode) || status.st_size > kMaxAgentBytes) {
    return Error(Code::kInvalidArgument, path + " is not the agent's library");
  }
  std::string content(static_cast<size_t>(status.st_size), '\0');
  for (size_t done = 0; done < content.size();) {
    const ssize_t got = read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return FileError("cannot read", path);
    done += static_cast<size_t>(got);
  }
  return content;
}

Result<void> Write(const std::string& path, std::string_view content) {
  // Replaces a file of another user, who could change its content later.
  unlink(path.c_str());
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0755));
  // The mode is for the processes' users, whatever the umask is.
  if (!file.valid() || fchmod(file.get(), 0755) != 0) return FileError("cannot write", path);
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FileError("cannot write", path);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

int Fail(const std::string& sentence) {
  fprintf(stderr, "stackd: %s\n", sentence.c_str());
  return 1;
}

std::string SharedFolder() {
  const char* dir = getenv("STACKD_DIR");
  return dir == nullptr || *dir == '\0' ? "/run/stackd" : dir;
}

// A process that crashes before there was a daemon would make the folder its own, and closed to a daemon of another user.
Result<void> MakeSpool(const std::string& dir) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(dir, ignored) || std::filesystem::exists(dir + "/" STACKD_SPOOL_FOLDER, ignored))
    return {};
  auto spool = Spool::Open(dir);
  return spool ? Result<void>() : std::unexpected(spool.error());
}

}  // namespace

Result<std::string> FindAgent(const std::string& program) {
  const std::filesystem::path folder = std::filesystem::path(program).parent_path();
  for (const char* place : {"../lib/stackd", ".", "../agent"}) {
    std::error_code ignored;
    const std::filesystem::path found = (folder / place / kAgentFileName).lexically_normal();
    if (std::filesystem::is_regular_file(found, ignored)) return found.string();
  }
  return Error(Code::kNotFound, std::string("there is no ") + kAgentFileName + " in ../lib/stackd of the folder of " +
                                    program + ", nor beside it");
}

Result<void> InstallAgent(const std::string& agent, const std::string& dir) {
  auto content = Read(agent);
  if (!content) return std::unexpected(content.error());
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) return Error(Code::kPermissionDenied, "cannot make the folder " + dir + ": " + failed.message());
  const std::string path = dir + "/" + kAgentFileName;
  if (auto there = Read(path); there && *there == *content) return {};
  // The name has the pid, so that two installers at once do not share it.
  const std::string temporary = path + "." + std::to_string(getpid());
  Result<void> written = Write(temporary, *content);
  if (written && rename(temporary.c_str(), path.c_str()) != 0) written = FileError("cannot write", path);
  if (!written) unlink(temporary.c_str());
  return written;
}

std::optional<int> InstallAgentIfAsked(int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "install-agent") return std::nullopt;
  if (argc != 3 || argv[2][0] == '-' || argv[2][0] == '\0') {
    fprintf(stderr, "stackd: install-agent takes a folder: stackd install-agent /run/stackd/agent\n");
    return 2;
  }
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return Fail("cannot read /proc/self/exe: " + failed.message());
  auto agent = FindAgent(program.string());
  if (!agent) return Fail(agent.error().message);
  if (Result<void> done = InstallAgent(*agent, argv[2]); !done) return Fail(done.error().message);
  if (Result<void> done = MakeSpool(SharedFolder()); !done) return Fail(done.error().message);
  printf("%s/%s\n", argv[2], kAgentFileName);
  return 0;
}

}  // namespace stackd
