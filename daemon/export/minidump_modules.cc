#include "daemon/export/minidump_modules.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>

#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

// One file, whatever it is called in the end.
using FileKey = std::tuple<uint64_t, uint64_t, std::string, std::string>;  // device, inode, path, build-id

// The mappings of a file with one bias. node maps its own text a second time, elsewhere.
struct Load {
  uint64_t end_avma = 0;
  bool has_code = false;
};

struct LoadedFile {
  uint64_t lowest_svma = std::numeric_limits<uint64_t>::max();
  std::map<uint64_t, Load> load_of_bias;
};

std::string BytesOfHex(std::string_view hex) {
  std::string bytes;
  for (; hex.size() >= 2; hex.remove_prefix(2)) {
    uint8_t byte = 0;
    std::from_chars(hex.data(), hex.data() + 2, byte, 16);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

// The name that symbol stores have the file under.
std::string StoredName(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (path == "[vdso]") return "linux-gate.so";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  return std::string(path);
}

std::map<FileKey, LoadedFile> FilesOf(const RawCapture& raw) {
  std::map<FileKey, LoadedFile> files;
  const std::vector<Mapping>& mappings = raw.capture.map->mappings();
  for (size_t i = 0; i < mappings.size(); ++i) {
    const Mapping& mapping = mappings[i];
    if (mapping.inode == 0 && mapping.path != "[vdso]") continue;
    LoadedFile& file = files[{mapping.device, mapping.inode, mapping.path, raw.build_ids[i]}];
    file.lowest_svma = std::min(file.lowest_svma, mapping.start_avma - mapping.bias);
    Load& load = file.load_of_bias[mapping.bias];
    load.end_avma = std::max(load.end_avma, mapping.end_avma);
    load.has_code |= mapping.executable;
  }
  return files;
}

}  // namespace

std::vector<LoadedModule> LoadedModules(const RawCapture& raw) {
  std::vector<LoadedModule> modules;
  for (const auto& [key, file] : FilesOf(raw)) {
    for (const auto& [bias, load] : file.load_of_bias) {
      if (!load.has_code) continue;
      const uint64_t base_avma = bias + file.lowest_svma;
      modules.push_back({base_avma, load.end_avma - base_avma, StoredName(std::get<2>(key)), BytesOfHex(std::get<3>(key))});
    }
  }
  const std::string executable = StoredName(raw.capture.process.executable);
  std::ranges::sort(modules, {},
                    [&](const LoadedModule& module) { return std::tuple(module.name != executable, module.base_avma); });
  return modules;
}

}  // namespace stackd
