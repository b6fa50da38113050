#include "daemon/crashes/find_modules.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "daemon/base/fd.h"
#include "daemon/base/regular_file.h"

namespace stackd {
namespace {

// Opens a path from the maps of another process: absolute, and with links resolved.
Fd OpenMappedFile(const std::string& path) {
  if (path.empty() || path[0] != '/' || path.ends_with(" (deleted)")) return {};
  return OpenRegularFile(path, /*follow_link=*/false);
}

// True if `image` holds an ELF header and all program headers: less would prove nothing.
bool HasProgramHeaders(const std::string& image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof(header)) return false;
  memcpy(&header, image.data(), sizeof(header));
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phnum == 0) return false;
  uint64_t headers_bytes = uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  return header.e_phoff <= image.size() && headers_bytes <= image.size() - header.e_phoff;
}

bool BeginsAs(int fd, uint64_t file_offset, const std::string& image) {
  std::string bytes(image.size(), '\0');
  ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(file_offset));
  return got == static_cast<ssize_t>(bytes.size()) && bytes == image;
}

std::shared_ptr<const Module> ModuleOfImage(const SpoolImage& image, const Mapping& mapping, ModuleCache* cache) {
  if (!HasProgramHeaders(image.bytes)) return nullptr;
  Fd fd = OpenMappedFile(mapping.path);
  if (!fd.valid() || !BeginsAs(fd.get(), mapping.file_offset, image.bytes)) return nullptr;
  auto module = cache->Get(std::move(fd), mapping.path);
  return module ? *module : nullptr;
}

auto FileOf(const Mapping& mapping) { return std::tie(mapping.device, mapping.inode, mapping.path); }

void NoteMissing(const std::vector<Mapping>& mappings, std::vector<std::string>* notes) {
  std::vector<std::string_view> paths;
  for (const Mapping& mapping : mappings) {
    if (mapping.executable && mapping.inode != 0 && mapping.module == nullptr) paths.push_back(mapping.path);
  }
  std::ranges::sort(paths);
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  if (paths.empty()) return;
  notes->push_back("code of " + std::string(paths[0]) +
                   (paths.size() > 1 ? " and " + std::to_string(paths.size() - 1) + " more files" : "") +
                   " could not be had: the process has ended, and there is no such file here");
}

}  // namespace

void FindModules(const std::vector<SpoolImage>& images, ModuleCache* cache, std::vector<Mapping>* mappings,
                 std::vector<std::string>* notes) {
  for (const SpoolImage& image : images) {
    auto first = std::ranges::find(*mappings, image.start_avma, &Mapping::start_avma);
    if (first == mappings->end() || first->module != nullptr) continue;
    std::shared_ptr<const Module> module = ModuleOfImage(image, *first, cache);
    if (module == nullptr) continue;
    for (Mapping& mapping : *mappings) {
      if (FileOf(mapping) != FileOf(*first)) continue;
      auto bias = MappingBias(mapping, *module);
      if (!bias) continue;
      mapping.module = module;
      mapping.bias = *bias;
    }
  }
  NoteMissing(*mappings, notes);
}

}  // namespace stackd
