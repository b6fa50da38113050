#include "daemon/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace stackd {

Fd OpenRegularFile(const std::string& path, bool follow_link) {
  const Fd place(open(path.c_str(), O_PATH | O_CLOEXEC | (follow_link ? 0 : O_NOFOLLOW)));
  struct stat status;
  if (!place.valid() || fstat(place.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Fd();
  return Fd(open(("/proc/self/fd/" + std::to_string(place.get())).c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
}

}  // namespace stackd
