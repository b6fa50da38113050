#include "daemon/app/memory_limit.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace stackd {
namespace {

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The least limit of the folder and all above it, up to `base`.
int64_t LeastLimit(const std::string& base, std::string path, const std::string& file, int64_t limit_bytes) {
  for (;;) {
    const std::string text = ReadLine(base + path + "/" + file);
    // "max", or no such file.
    if (!text.empty() && text[0] >= '0' && text[0] <= '9') {
      limit_bytes = std::min(limit_bytes, static_cast<int64_t>(strtoll(text.c_str(), nullptr, 10)));
    }
    if (path.empty()) return limit_bytes;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool Has(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

int64_t MemoryLimitBytes(const std::string& cgroup_text, const std::string& root, int64_t machine_bytes) {
  int64_t limit_bytes = machine_bytes;
  std::istringstream lines(cgroup_text);
  for (std::string line; std::getline(lines, line);) {
    // "id:controllers:path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) limit_bytes = LeastLimit(root, path, "memory.max", limit_bytes);
    if (Has(controllers, "memory")) limit_bytes = LeastLimit(root + "/memory", path, "memory.limit_in_bytes", limit_bytes);
  }
  return limit_bytes;
}

int64_t MemoryLimitBytes() {
  struct sysinfo machine{};
  sysinfo(&machine);
  std::ifstream file("/proc/self/cgroup");
  std::stringstream text;
  text << file.rdbuf();
  return MemoryLimitBytes(text.str(), "/sys/fs/cgroup", static_cast<int64_t>(machine.totalram) * machine.mem_unit);
}

}  // namespace stackd
