#include "daemon/process/module_loader.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
// Limit for all images copied from one process's memory. An executable that was deleted is not among them.
constexpr uint64_t kMaxImageBytes = 64ull << 20;
constexpr uint64_t kCopyBytes = 1ull << 20;
// Limit for files with code of one process: each costs an fd for as long as the process is connected.
constexpr size_t kMaxFiles = 1024;
constexpr size_t kMaxNotes = 8;
constexpr size_t kFirstPageBytes = 4096;

void NoteMissing(const std::vector<std::string>& paths, std::vector<std::string>* notes) {
  for (size_t i = 0; i < std::min(paths.size(), kMaxNotes); i++) {
    notes->push_back("code of " + paths[i] + " could not be had: neither its file nor its memory can be read");
  }
  if (paths.size() > kMaxNotes) {
    notes->push_back("code of " + std::to_string(paths.size() - kMaxNotes) + " more files could not be had");
  }
}

}  // namespace

ModuleLoader::ModuleLoader(const ProcessFiles* files, ModuleCache* cache, std::string executable, OpenFiles open_files,
                           ReadImage read_image, ByteBudget* images)
    : files_(files),
      cache_(cache),
      executable_(std::move(executable)),
      open_files_(std::move(open_files)),
      read_image_(std::move(read_image)),
      images_budget_(images) {}

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

Result<std::vector<uint8_t>> ModuleLoader::ReadMapped(uint64_t avma, uint64_t size_bytes) const {
  return files_->has_memory() ? files_->ReadMemory(avma, size_bytes) : read_image_(avma, size_bytes, deadline_ns_);
}

bool ModuleLoader::SameAsMemory(int fd, const Mapping& mapping) const {
  // Without memory there is nothing to compare with: the agent has compared what it passed. A process that lies about its
  // files spoils its own dumps alone: modules are shared by what the kernel says of the file.
  if (!files_->has_memory()) return true;
  uint8_t file_bytes[kFirstPageBytes];
  ssize_t got = pread(fd, file_bytes, sizeof(file_bytes), static_cast<off_t>(mapping.file_offset));
  if (got <= 0) return false;
  auto memory = files_->ReadMemory(mapping.start_avma, static_cast<uint64_t>(got));
  return memory && memcmp(memory->data(), file_bytes, static_cast<size_t>(got)) == 0;
}

std::shared_ptr<const Module> ModuleLoader::FromFile(Fd fd, const Mapping& first) const {
  struct stat status;
  // On anything but a regular file even the first read might wait for ever.
  if (!fd.valid() || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return nullptr;
  if (!SameAsMemory(fd.get(), first)) return nullptr;
  auto module = cache_->Get(std::move(fd), first.path);
  return module ? *module : nullptr;
}

std::shared_ptr<const Module> ModuleLoader::OfAnotherProcess(const MappedFile& file, const Mapping& first) const {
  const auto& [device, inode, path] = file.key;
  auto module = cache_->Find(device, inode, path);
  return module != nullptr && SameAsMemory(module->fd(), first) ? module : nullptr;
}

bool ModuleLoader::CopyMemory(const Mapping& mapping, int to_fd, uint64_t to_offset) const {
  uint64_t size_bytes = mapping.end_avma - mapping.start_avma;
  for (uint64_t done = 0; done < size_bytes; done += kCopyBytes) {
    auto bytes = ReadMapped(mapping.start_avma + done, std::min(kCopyBytes, size_bytes - done));
    if (!bytes) return false;
    ssize_t written = pwrite(to_fd, bytes->data(), bytes->size(), static_cast<off_t>(to_offset + done));
    if (written != static_cast<ssize_t>(bytes->size())) return false;
  }
  return true;
}

std::shared_ptr<const Module> ModuleLoader::FromMemory(const std::vector<Mapping>& mappings, const MappedFile& file,
                                                       uint64_t* budget_bytes) const {
  const Mapping& first = mappings[file.mappings.front()];
  const Mapping& last = mappings[file.mappings.back()];
  uint64_t size_bytes = last.end_avma - first.start_avma;
  if (size_bytes > *budget_bytes) return nullptr;
  HeldBytes held(images_budget_);
  if (!held.Take(static_cast<int64_t>(size_bytes))) return nullptr;
  Fd image(memfd_create("stackd-image", MFD_CLOEXEC));
  if (!image.valid() || ftruncate(image.get(), static_cast<off_t>(size_bytes)) != 0) return nullptr;
  for (size_t i : file.mappings) {
    const Mapping& mapping = mappings[i];
    // Data stays in the process: headers, code and tables are in mappings that cannot be written.
    if (!mapping.readable || mapping.writable) continue;
    if (!CopyMemory(mapping, image.get(), mapping.start_avma - first.start_avma)) return nullptr;
  }
  auto module = Module::Open(std::move(image), first.path);
  if (!module) return nullptr;
  *budget_bytes -= size_bytes;
  // Given back with the module.
  auto image_and_memory = std::make_shared<std::pair<std::shared_ptr<const Module>, HeldBytes>>(*module, std::move(held));
  return {image_and_memory, image_and_memory->first.get()};
}

ModuleLoader::Modules ModuleLoader::LoadFiles(const std::vector<Mapping>& mappings, const std::vector<MappedFile>& files) {
  std::vector<std::string> paths;
  std::vector<const MappedFile*> asked;
  Modules loaded;
  for (const MappedFile& file : files) {
    if (auto it = known_.find(file.key); it != known_.end()) {
      loaded.insert(*it);
    } else if (auto module = OfAnotherProcess(file, mappings[file.mappings.front()])) {
      loaded[file.key] = std::move(module);
    } else if (std::string path = PathToOpen(std::get<2>(file.key)); !path.empty()) {
      paths.push_back(path);
      asked.push_back(&file);
    }
  }
  std::vector<std::optional<Fd>> fds = open_files_(paths, deadline_ns_);
  awaited_.clear();
  for (size_t i = 0; i < asked.size(); i++) {
    const Mapping& first = mappings[asked[i]->mappings.front()];
    // Another process may have passed it meanwhile.
    auto module = fds[i] ? FromFile(std::move(*fds[i]), first) : OfAnotherProcess(*asked[i], first);
    if (module != nullptr) {
      loaded[asked[i]->key] = std::move(module);
    } else if (!fds[i]) {
      awaited_.insert(asked[i]->key);
    }
  }
  return loaded;
}

std::vector<std::string> ModuleLoader::CopyImages(const std::vector<Mapping>& mappings,
                                                  const std::vector<MappedFile>& files, Modules* loaded) {
  // One process leaves room for others.
  uint64_t budget_bytes = images_budget_ == nullptr
                              ? kMaxImageBytes
                              : std::min(kMaxImageBytes, static_cast<uint64_t>(images_budget_->limit_bytes() / 2));
  for (const auto& [key, module] : *loaded) {
    if (images_.contains(key)) budget_bytes -= std::min(budget_bytes, module->identity().size_bytes);
  }
  std::vector<std::string> without_code;
  for (const MappedFile& file : files) {
    if (loaded->contains(file.key)) continue;
    auto module = FromMemory(mappings, file, &budget_bytes);
    if (module == nullptr) {
      without_code.push_back(std::get<2>(file.key));
      continue;
    }
    (*loaded)[file.key] = module;
    images_.insert(file.key);
  }
  return without_code;
}

Result<std::shared_ptr<const AddressMap>> ModuleLoader::Load(int64_t deadline_ns, std::vector<std::string>* notes) {
  deadline_ns_ = deadline_ns;
  auto text = files_->ReadMaps();
  if (!text) return std::unexpected(text.error());
  std::vector<Mapping> mappings = ParseMaps(*text);
  for (Mapping& mapping : mappings) mapping.path = ToValidUtf8(mapping.path);
  const std::vector<MappedFile> files = FilesWithCode(mappings);
  Modules loaded = LoadFiles(mappings, files);
  const std::vector<std::string> without_code = CopyImages(mappings, files, &loaded);
  // It ended while it was asked, and what it passed could not be compared with anything; or no time was left to ask.
  const bool is_unanswered = files_->HasNoMemoryLeft() || MonotonicNs() >= deadline_ns;
  NoteMissing(without_code, notes);
  for (const MappedFile& file : files) {
    const auto it = loaded.find(file.key);
    if (it == loaded.end()) {
      if (is_unanswered) awaited_.insert(file.key);
      continue;
    }
    for (size_t i : file.mappings) {
      auto bias = MappingBias(mappings[i], *it->second);
      if (!bias) continue;
      mappings[i].module = it->second;
      mappings[i].bias = *bias;
    }
  }
  known_ = std::move(loaded);
  std::erase_if(known_, [this](const auto& entry) { return awaited_.contains(entry.first); });
  std::erase_if(images_, [this](const FileKey& key) { return !known_.contains(key); });
  return std::make_shared<const AddressMap>(std::move(mappings));
}

}  // namespace stackd
