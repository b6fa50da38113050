#include "daemon/managed/go/go_reader.h"

#include <map>
#include <set>
#include <string>

#include "daemon/managed/go/goroutine_reader.h"
#include "daemon/managed/go/traceback_text.h"
#include "daemon/modules/address_map.h"

namespace stackd {
namespace {

// A table of functions has megabytes; one that is not used makes room.
constexpr size_t kMaxGoFiles = 8;
constexpr uint64_t kMaxGoFileBytes = 256 << 20;
// That a file is no Go program takes a few bytes to remember.
constexpr size_t kMaxFiles = 65536;

std::string DisplayVersion(const std::string& version) {
  return version.starts_with("go") ? "Go " + version.substr(2) : "Go";
}

class GoReader : public RuntimeReader {
 public:
  void Read(const RuntimeInput& input, ManagedFacts* facts) override {
    const bool has_report = AddReports(input, facts);
    if (input.capture.map == nullptr) return;
    std::set<const Module*> seen;
    for (const Mapping& mapping : input.capture.map->mappings()) {
      if (!mapping.executable || mapping.module == nullptr || !seen.insert(mapping.module.get()).second) continue;
      // A program that has ended left only its report.
      if (!has_report && IsGo(*mapping.module)) ReadModule(input, mapping, facts);
    }
  }

  void ReadGoroutines(const RuntimeInput& input, ManagedFacts* facts) override { Read(input, facts); }

 private:
  static bool AddReports(const RuntimeInput& input, ManagedFacts* facts) {
    bool has_report = false;
    for (const RuntimeReport& report : input.reports) {
      if (report.language != Language::kGo || !input.capture.crash) continue;
      AddGoTraceback(report, input.capture.crash->tid, facts);
      has_report = true;
    }
    return has_report;
  }

  using Opened = std::shared_ptr<const GoFile>;

  void ReadModule(const RuntimeInput& input, const Mapping& mapping, ManagedFacts* facts) {
    RuntimeDescription description;
    description.language = Language::kGo;
    description.name = "Go";
    if (input.memory == nullptr) {
      description.problem = "its memory cannot be read: its goroutines are not known";
    } else if (auto file = Open(input, mapping); !file) {
      description.problem = file.error().message;
    } else if (auto binary = GoBinary::Find(*file, *input.memory, mapping.bias, input.deadline_ns); !binary) {
      description.problem = binary.error().message;
    } else {
      description.name = DisplayVersion(binary->version());
      description.problem = GoroutineReader(*binary, mapping.bias, input, facts).Read();
    }
    facts->runtimes.push_back(std::move(description));
  }

  bool IsGo(const Module& module) {
    {
      std::lock_guard lock(mutex_);
      auto known = is_go_.find(module.identity());
      if (known != is_go_.end()) return known->second;
    }
    const bool is_go = GoFile::IsGo(module);
    std::lock_guard lock(mutex_);
    if (is_go_.size() >= kMaxFiles) is_go_.clear();
    is_go_[module.identity()] = is_go;
    return is_go;
  }

  Result<Opened> Open(const RuntimeInput& input, const Mapping& mapping) {
    const FileIdentity identity = mapping.module->identity();
    {
      std::lock_guard lock(mutex_);
      for (auto entry = files_.begin(); entry != files_.end(); ++entry) {
        if (entry->first != identity) continue;
        auto found = std::move(*entry);
        files_.erase(entry);
        files_.push_back(found);  // the last used one is the last
        return found.second;
      }
    }
    auto opened = GoFile::Open(mapping.module, input.deadline_ns);
    if (!opened) return opened;
    std::lock_guard lock(mutex_);
    files_.emplace_back(identity, *opened);
    while (files_.size() > kMaxGoFiles || (files_.size() > 1 && KeptBytes() > kMaxGoFileBytes))
      files_.erase(files_.begin());
    return opened;
  }

  // With the mutex.
  uint64_t KeptBytes() const {
    uint64_t size_bytes = 0;
    for (const auto& [identity, file] : files_) size_bytes += file->size_bytes();
    return size_bytes;
  }

  std::mutex mutex_;
  std::map<FileIdentity, bool> is_go_;
  std::vector<std::pair<FileIdentity, Opened>> files_;
};

}  // namespace

std::unique_ptr<RuntimeReader> MakeGoReader() { return std::make_unique<GoReader>(); }

}  // namespace stackd
