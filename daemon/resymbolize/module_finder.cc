#include "daemon/resymbolize/module_finder.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "daemon/base/regular_file.h"
#include "daemon/base/text.h"
#include "daemon/modules/module_stub.h"

namespace stackd {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
// As many as a process may have while it lives; each stub costs an fd for as long as the dump is named.
constexpr size_t kMaxFiles = 1024;
constexpr size_t kMaxNamed = 3;

// The raw bytes of a build-id in hex; empty for anything else.
std::string BytesOfHex(std::string_view hex) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return {};
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

// nullptr if there is no file with this build-id.
std::shared_ptr<const Module> OpenModule(const std::string& file, const std::string& path, const std::string& build_id) {
  Fd fd = OpenRegularFile(file, /*follow_link=*/true);
  if (!fd.valid()) return nullptr;
  auto module = Module::Open(std::move(fd), path);
  if (!module || HexOfBytes((*module)->build_id()) != build_id) return nullptr;
  return *module;
}

// One file of the process.
struct MappedFile {
  std::string path;
  std::string build_id;
  std::vector<size_t> mappings;
};

std::vector<MappedFile> FilesOf(const RawCapture& raw) {
  const std::vector<Mapping>& mappings = raw.capture.map->mappings();
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> by_file;
  for (size_t i = 0; i < mappings.size(); ++i) {
    // Without a build-id nothing says whether a file is the right one.
    if (!BytesOfHex(raw.build_ids[i]).empty()) by_file[{mappings[i].path, raw.build_ids[i]}].push_back(i);
  }
  std::vector<MappedFile> files;
  for (auto& [file, indices] : by_file) {
    const bool has_code = std::ranges::any_of(indices, [&](size_t i) { return mappings[i].executable; });
    if (has_code && files.size() < kMaxFiles) files.push_back({file.first, file.second, std::move(indices)});
  }
  return files;
}

std::shared_ptr<const Module> StubOf(const MappedFile& file, const std::vector<Mapping>& mappings) {
  for (size_t i : file.mappings) {
    const Mapping& mapping = mappings[i];
    if (!mapping.executable) continue;
    auto stub = MakeModuleStub(file.path, BytesOfHex(file.build_id), mapping.start_avma - mapping.bias,
                               mapping.end_avma - mapping.start_avma);
    return stub ? *stub : nullptr;
  }
  return nullptr;
}

std::string NoteOn(const std::vector<const MappedFile*>& missing) {
  if (missing.empty()) return {};
  std::string note = "not found here:";
  for (size_t i = 0; i < std::min(missing.size(), kMaxNamed); ++i) {
    note += (i == 0 ? " " : ", ") + missing[i]->path + " (build-id " + missing[i]->build_id + ")";
  }
  if (missing.size() > kMaxNamed) note += " and " + std::to_string(missing.size() - kMaxNamed) + " more files";
  return note + "; a stack may end early there";
}

}  // namespace

void ModuleFinder::Learn(int32_t uid, const AddressMap& map) {
  const std::lock_guard lock(mutex_);
  const Module* last = nullptr;
  bool is_new = false;
  for (const Mapping& mapping : map.mappings()) {
    if (mapping.module == nullptr || mapping.module.get() == last || mapping.module->build_id().empty()) continue;
    last = mapping.module.get();
    const auto [entry, inserted] = known_.try_emplace({uid, HexOfBytes(last->build_id())}, mapping.module);
    if (entry->second.expired()) entry->second = mapping.module;
    is_new |= inserted;
  }
  if (is_new) std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
}

std::shared_ptr<const Module> ModuleFinder::FindModule(int32_t uid, const std::string& path,
                                                       const std::string& build_id) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find({uid, build_id}); known != known_.end()) {
      if (auto module = known->second.lock()) return module;
    }
  }
  std::string_view plain = path;
  if (plain.ends_with(kDeleted)) plain.remove_suffix(kDeleted.size());
  const bool is_path = plain.starts_with('/') && plain.find('\0') == plain.npos;
  std::vector<std::string> candidates;
  if (is_path) candidates.emplace_back(plain);
  for (const std::string& dir : dirs_) {
    if (build_id.size() > 2) candidates.push_back(dir + "/.build-id/" + build_id.substr(0, 2) + "/" + build_id.substr(2));
    if (is_path) candidates.push_back(dir + std::string(plain));
  }
  for (const std::string& file : candidates) {
    if (auto module = OpenModule(file, path, build_id)) return module;
  }
  return nullptr;
}

ModuleFinder::Found ModuleFinder::Find(const RawCapture& raw) const {
  std::vector<Mapping> mappings = raw.capture.map->mappings();
  Found found;
  std::vector<const MappedFile*> missing;
  const std::vector<MappedFile> files = FilesOf(raw);
  for (const MappedFile& file : files) {
    auto module = FindModule(raw.capture.process.uid, file.path, file.build_id);
    if (module == nullptr) {
      // The vDSO is no file that an operator could put here.
      if (file.path.starts_with('/')) missing.push_back(&file);
      module = StubOf(file, mappings);
    }
    for (size_t i : file.mappings) mappings[i].module = module;
  }
  found.note = NoteOn(missing);
  found.map = std::make_shared<const AddressMap>(std::move(mappings));
  return found;
}

}  // namespace stackd
