#include "daemon/symbolize/debug_files.h"

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "daemon/base/text.h"

namespace stackd {
namespace {

struct DebugLink {
  std::string name;
  uint32_t crc;
};

// A zero-terminated name, padding to 4 bytes, the checksum.
std::optional<DebugLink> ReadDebugLink(const ElfFile& module) {
  std::optional<ElfSection> section = module.FindSection(".gnu_debuglink");
  if (!section) return std::nullopt;
  std::span<const uint8_t> bytes = ElfFile::RawBytes(*section);
  size_t name_bytes = strnlen(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  size_t crc_offset = (name_bytes + 4) & ~size_t{3};
  if (name_bytes == bytes.size() || crc_offset > bytes.size() || bytes.size() - crc_offset < 4) return std::nullopt;
  DebugLink link{std::string(reinterpret_cast<const char*>(bytes.data()), name_bytes), 0};
  memcpy(&link.crc, bytes.data() + crc_offset, sizeof(link.crc));
  return link;
}

std::optional<uint32_t> FileCrc(int fd) {
  std::array<uint8_t, 65536> buffer;
  uLong crc = crc32(0, nullptr, 0);
  for (off_t offset = 0;;) {
    ssize_t n = pread(fd, buffer.data(), buffer.size(), offset);
    if (n < 0) return std::nullopt;
    if (n == 0) return crc;
    crc = crc32(crc, buffer.data(), n);
    offset += n;
  }
}

}  // namespace

DebugFiles::DebugFiles(const std::vector<std::string>& dirs, OpenBelow open_below)
    : folders_(dirs.size()), open_below_(std::move(open_below)) {
  for (const std::string& dir : dirs) description_ += (description_.empty() ? "" : ", ") + dir;
}

std::unique_ptr<ElfFile> DebugFiles::FindByBuildId(const std::string& build_id) const {
  if (build_id.size() < 2) return nullptr;
  std::string hex = HexOfBytes(build_id);
  std::string path = ".build-id/" + hex.substr(0, 2) + "/" + hex.substr(2) + ".debug";
  for (size_t folder = 0; folder < folders_; ++folder) {
    auto file = ElfFile::OpenFd(open_below_(folder, path));
    if (file != nullptr && file->build_id() == build_id) return file;
  }
  return nullptr;
}

std::unique_ptr<ElfFile> DebugFiles::FindByDebugLink(const ElfFile& module, std::string_view module_path) const {
  std::optional<DebugLink> link = ReadDebugLink(module);
  if (!link || link->name.find('/') != std::string::npos || !module_path.starts_with('/')) return nullptr;
  std::string module_folder(module_path.substr(1, module_path.rfind('/')));
  for (size_t folder = 0; folder < folders_; ++folder) {
    for (const std::string& path : {module_folder + link->name, module_folder + ".debug/" + link->name}) {
      Fd fd = open_below_(folder, path);
      Fd crc_fd(fd.valid() ? fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
      auto file = ElfFile::OpenFd(std::move(fd));
      if (file == nullptr) continue;
      bool both_have_ids = !module.build_id().empty() && !file->build_id().empty();
      // The build-id says more than the checksum, and is not read through the whole file.
      bool matches = both_have_ids ? file->build_id() == module.build_id() : FileCrc(crc_fd.get()) == link->crc;
      if (matches) return file;
    }
  }
  return nullptr;
}

std::unique_ptr<ElfFile> DebugFiles::FindFor(const ElfFile& module, std::string_view module_path) const {
  auto file = FindByBuildId(module.build_id());
  return file != nullptr ? std::move(file) : FindByDebugLink(module, module_path);
}

std::unique_ptr<ElfFile> DebugFiles::FindDwzOf(const ElfFile& debug_file) const {
  std::optional<ElfSection> section = debug_file.FindSection(".gnu_debugaltlink");
  if (!section) return nullptr;
  std::span<const uint8_t> bytes = ElfFile::RawBytes(*section);
  std::string_view link(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  size_t name_bytes = link.find('\0');
  if (name_bytes == std::string_view::npos) return nullptr;
  std::string build_id(link.substr(name_bytes + 1));
  auto file = FindByBuildId(build_id);
  if (file != nullptr) return file;
  // The link is a path of the machine that built the file. What it says below ".dwz/" holds here too.
  std::string_view path = link.substr(0, name_bytes);
  size_t common = path.find(".dwz/");
  if (common == std::string_view::npos) return nullptr;
  for (size_t folder = 0; folder < folders_; ++folder) {
    file = ElfFile::OpenFd(open_below_(folder, std::string(path.substr(common))));
    if (file != nullptr && file->build_id() == build_id) return file;
  }
  return nullptr;
}

}  // namespace stackd
