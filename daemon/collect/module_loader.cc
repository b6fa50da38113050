#include "daemon/collect/module_loader.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
constexpr uint64_t kMaxImageBytes = 256ull << 20;
constexpr size_t kMaxFiles = 4096;
constexpr size_t kFirstPageBytes = 4096;

FileIdentity IdentityOf(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size_bytes = static_cast<uint64_t>(status.st_size),
          .mtime_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
          .ctime_ns = status.st_ctim.tv_sec * 1'000'000'000 + status.st_ctim.tv_nsec};
}

}  // namespace

Result<std::shared_ptr<const Module>> ModuleCache::Get(Fd fd, const std::string& path) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return Error(Code::kInternal, std::string("fstat: ") + strerror(errno));
  FileIdentity identity = IdentityOf(status);
  {
    std::lock_guard lock(mutex_);
    if (auto it = modules_.find(identity); it != modules_.end()) {
      if (auto module = it->second.lock()) return module;
    }
  }
  auto module = Module::Open(std::move(fd), path);
  if (!module) return module;
  std::lock_guard lock(mutex_);
  std::erase_if(modules_, [](const auto& entry) { return entry.second.expired(); });
  modules_[identity] = *module;
  return module;
}

ModuleLoader::ModuleLoader(const ProcessFiles* files, ModuleCache* cache, std::string executable, OpenFiles open_files)
    : files_(files), cache_(cache), executable_(std::move(executable)), open_files_(std::move(open_files)) {}

std::vector<ModuleLoader::MappedFile> ModuleLoader::FilesWithCode(const std::vector<Mapping>& mappings) const {
  std::map<FileKey, MappedFile> files;
  for (size_t i = 0; i < mappings.size(); i++) {
    const Mapping& mapping = mappings[i];
    bool is_file = mapping.inode != 0 || mapping.path == "[vdso]";
    if (!is_file) continue;
    FileKey key{mapping.device, mapping.inode, mapping.path};
    auto& file = files[key];
    file.key = key;
    file.mappings.push_back(i);
  }
  std::vector<MappedFile> result;
  for (auto& [key, file] : files) {
    bool has_code = std::ranges::any_of(file.mappings, [&](size_t i) { return mappings[i].executable; });
    if (has_code && result.size() < kMaxFiles) result.push_back(std::move(file));
  }
  return result;
}

std::string ModuleLoader::PathToOpen(const std::string& mapped_path) const {
  if (mapped_path.empty() || mapped_path[0] != '/') return {};
  if (!mapped_path.ends_with(kDeleted)) return mapped_path;
  // The kernel still reaches a deleted executable, but no other deleted file.
  std::string_view exe = executable_;
  if (exe.ends_with(kDeleted)) exe.remove_suffix(kDeleted.size());
  std::string_view path(mapped_path);
  path.remove_suffix(kDeleted.size());
  return path == exe ? "/proc/self/exe" : "";
}

bool ModuleLoader::SameAsMemory(int fd, const Mapping& mapping) const {
  if (!files_->has_memory()) return true;  // nothing to compare with; `limits` of the process say so
  uint8_t file_bytes[kFirstPageBytes];
  ssize_t got = pread(fd, file_bytes, sizeof(file_bytes), static_cast<off_t>(mapping.file_offset));
  if (got <= 0) return false;
  auto memory = files_->ReadMemory(mapping.start_avma, static_cast<uint64_t>(got));
  return memory && memcmp(memory->data(), file_bytes, static_cast<size_t>(got)) == 0;
}

std::shared_ptr<const Module> ModuleLoader::FromMemory(const std::vector<Mapping>& mappings, const MappedFile& file) {
  const Mapping& first = mappings[file.mappings.front()];
  const Mapping& last = mappings[file.mappings.back()];
  uint64_t size_bytes = last.end_avma - first.start_avma;
  if (size_bytes > kMaxImageBytes) return nullptr;
  Fd image(memfd_create("stackd-image", MFD_CLOEXEC));
  if (!image.valid() || ftruncate(image.get(), static_cast<off_t>(size_bytes)) != 0) return nullptr;
  for (size_t i : file.mappings) {
    const Mapping& mapping = mappings[i];
    // Data stays in the process: headers, code and tables are in mappings that cannot be written.
    if (!mapping.readable || mapping.writable) continue;
    auto bytes = files_->ReadMemory(mapping.start_avma, mapping.end_avma - mapping.start_avma);
    if (!bytes) return nullptr;
    auto at = static_cast<off_t>(mapping.start_avma - first.start_avma);
    if (pwrite(image.get(), bytes->data(), bytes->size(), at) != static_cast<ssize_t>(bytes->size())) return nullptr;
  }
  auto module = Module::Open(std::move(image), first.path);
  return module ? *module : nullptr;
}

Result<std::shared_ptr<const AddressMap>> ModuleLoader::Load(int64_t deadline_ns, std::vector<std::string>* notes) {
  auto text = files_->ReadMaps();
  if (!text) return std::unexpected(text.error());
  std::vector<Mapping> mappings = ParseMaps(*text);
  for (Mapping& mapping : mappings) mapping.path = ToValidUtf8(mapping.path);

  std::vector<MappedFile> files = FilesWithCode(mappings);
  std::vector<std::string> paths;
  std::vector<const MappedFile*> asked;
  std::map<FileKey, std::shared_ptr<const Module>> loaded;
  for (const MappedFile& file : files) {
    if (auto it = known_.find(file.key); it != known_.end()) {
      loaded.insert(*it);
    } else if (std::string path = PathToOpen(std::get<2>(file.key)); !path.empty()) {
      paths.push_back(path);
      asked.push_back(&file);
    }
  }
  std::vector<Fd> fds = open_files_(paths, deadline_ns);
  for (size_t i = 0; i < asked.size(); i++) {
    const Mapping& first = mappings[asked[i]->mappings.front()];
    if (!fds[i].valid() || !SameAsMemory(fds[i].get(), first)) continue;
    if (auto module = cache_->Get(std::move(fds[i]), first.path)) loaded[asked[i]->key] = *module;
  }
  for (const MappedFile& file : files) {
    if (loaded.contains(file.key)) continue;
    if (auto module = FromMemory(mappings, file)) {
      loaded[file.key] = module;
    } else {
      notes->push_back("code of " + std::get<2>(file.key) +
                       " could not be had: neither its file nor its memory can be read");
    }
  }
  for (const MappedFile& file : files) {
    auto it = loaded.find(file.key);
    if (it == loaded.end()) continue;
    for (size_t i : file.mappings) {
      auto bias = MappingBias(mappings[i], *it->second);
      if (!bias) continue;
      mappings[i].module = it->second;
      mappings[i].bias = *bias;
    }
  }
  known_ = std::move(loaded);
  return std::make_shared<const AddressMap>(std::move(mappings));
}

}  // namespace stackd
