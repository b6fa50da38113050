#include "daemon/managed/go/go_binary.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"

namespace stackd {
namespace {

constexpr uint64_t kMaxTableBytes = 256 << 20;
// Limit for all sections that may hold the description of the module.
constexpr uint64_t kMaxDataBytes = 64 << 20;
// Places that look like the start of a table. There is one.
constexpr int kMaxCandidates = 8;
constexpr uint64_t kMaxFunctionBytes = 4096;
constexpr uint64_t kMaxVersionBytes = 128;
constexpr int kMaxInlineDepth = 128;
// Longer names are cut.
constexpr size_t kMaxNameBytes = 1024;
// Reading all code of a program that is too large for it costs a second of CPU time. It is tried again so late.
constexpr int64_t kReadAgainNs = 20 * kNsPerSecond;

// Source: runtime.moduledata in the DWARF of go1.21.13 to go1.26.8, the same in all.
constexpr uint64_t kModuleMinPc = 160, kModuleText = 176, kModuleTextEnd = 184, kModuleFunctionData = 320;
constexpr uint64_t kModuleBytes = 328;

uint64_t LoadWord(const uint8_t* bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof(word));
  return word;
}

bool IsTable(const NamedSection& section) { return section.name.ends_with(".gopclntab"); }
bool IsBuildInfo(const NamedSection& section) { return section.name == ".go.buildinfo"; }

// Linkers place the description of the module in one of these.
bool MayHoldModule(const NamedSection& section) {
  static const std::set<std::string_view> kNames = {".go.module", ".noptrdata", ".data", ".data.rel.ro"};
  return kNames.contains(section.name);
}

std::string Cut(std::string_view text) { return ToValidUtf8(text.substr(0, kMaxNameBytes)); }

// "main.f[go.shape.int]" -> "main.f[...]", as the runtime prints it.
std::string PrintedName(std::string_view name) {
  const size_t open = name.find('[');
  const size_t close = name.rfind(']');
  if (open == name.npos || close == name.npos || close < open) return Cut(name);
  return Cut(std::string(name.substr(0, open)) + "[...]" + std::string(name.substr(close + 1)));
}

}  // namespace

class GoFileParser {
 public:
  GoFileParser(const std::shared_ptr<const Module>& module, int64_t deadline_ns)
      : deadline_ns_(deadline_ns), sections_(LoadedSections(*module)), file_(new GoFile()) {
    file_->module_ = module;
  }

  Result<std::shared_ptr<const GoFile>> Parse() {
    if (auto failed = ReadVersion()) return std::unexpected(std::move(*failed));
    if (auto failed = ReadFunctions()) return std::unexpected(std::move(*failed));
    auto walk = file_->functions_->FindFunctionByName("runtime.forEachG", deadline_ns_);
    if (!walk) return Error(Code::kInvalidArgument, "its list of goroutines was not found");
    file_->for_each_goroutine_ = *walk;
    std::copy_if(sections_.begin(), sections_.end(), std::back_inserter(file_->data_), MayHoldModule);
    return std::shared_ptr<const GoFile>(std::move(file_));
  }

 private:
  std::optional<Status> ReadVersion() {
    constexpr std::string_view kMagic = "\xff Go buildinf:";
    constexpr size_t kFlags = 15, kInlineStrings = 2, kStrings = 32;
    auto section = std::find_if(sections_.begin(), sections_.end(), IsBuildInfo);
    if (section == sections_.end()) return Status{Code::kInvalidArgument, "it does not say of which version it is"};
    auto bytes = file_->module_->Read(section->file_offset, std::min(section->size_bytes, kStrings + 2 + kMaxVersionBytes));
    if (!bytes || bytes->size() <= kStrings || memcmp(bytes->data(), kMagic.data(), kMagic.size()) != 0 ||
        ((*bytes)[kFlags] & kInlineStrings) == 0) {
      return Status{Code::kInvalidArgument, "it does not say of which version it is"};
    }
    // The length is a varint; versions are shorter than 128 bytes.
    const size_t length = (*bytes)[kStrings];
    if (length >= kMaxVersionBytes || length > bytes->size() - kStrings - 1) {
      return Status{Code::kInvalidArgument, "it does not say of which version it is"};
    }
    file_->version_.assign(reinterpret_cast<const char*>(bytes->data()) + kStrings + 1, length);
    file_->version_ = ToValidUtf8(file_->version_);
    file_->layout_ = FindGoLayout(file_->version_);
    if (file_->layout_ == nullptr) {
      return Status{Code::kUnimplemented,
                    "it is built by " + file_->version_ + ", and goroutines are known of go1.21 to go1.26"};
    }
    return std::nullopt;
  }

  std::optional<Status> ReadFunctions() {
    auto section = std::find_if(sections_.begin(), sections_.end(), IsTable);
    // Where a position-independent program was linked by another linker, the table is a part of its constant data.
    if (section == sections_.end()) return ReadFunctionsOutOfData();
    auto bytes = file_->module_->Read(section->file_offset, section->size_bytes, kMaxTableBytes);
    if (!bytes) return std::move(bytes.error());
    return TakeFunctions(section->svma, std::move(*bytes));
  }

  std::optional<Status> ReadFunctionsOutOfData() {
    constexpr uint8_t kStart[] = {0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8};
    const Status not_found{Code::kInvalidArgument, "its table of functions was not found"};
    auto section = std::find_if(sections_.begin(), sections_.end(),
                                [](const NamedSection& one) { return one.name == ".data.rel.ro"; });
    if (section == sections_.end()) return not_found;
    auto bytes = file_->module_->Read(section->file_offset, section->size_bytes, kMaxTableBytes);
    if (!bytes) return std::move(bytes.error());
    int candidates = 0;
    for (size_t at = (8 - section->svma % 8) % 8; at + sizeof(kStart) <= bytes->size(); at += 8) {
      if (memcmp(bytes->data() + at, kStart, sizeof(kStart)) != 0) continue;
      if (++candidates > kMaxCandidates) break;
      if (Pclntab::Check(std::span(*bytes).subspan(at))) continue;
      bytes->erase(bytes->begin(), bytes->begin() + static_cast<ptrdiff_t>(at));
      return TakeFunctions(section->svma + at, std::move(*bytes));
    }
    return not_found;
  }

  std::optional<Status> TakeFunctions(uint64_t svma, std::vector<uint8_t> bytes) {
    auto table = Pclntab::Parse(std::move(bytes));
    if (!table) return std::move(table.error());
    file_->functions_ = std::move(*table);
    file_->table_svma_ = svma;
    return std::nullopt;
  }

  const int64_t deadline_ns_;
  std::vector<NamedSection> sections_;
  std::unique_ptr<GoFile> file_;
};

Result<std::shared_ptr<const GoFile>> GoFile::Open(const std::shared_ptr<const Module>& module, int64_t deadline_ns) {
  return GoFileParser(module, deadline_ns).Parse();
}

bool GoFile::IsGo(const Module& module) {
  const std::vector<NamedSection> sections = LoadedSections(module);
  return std::any_of(sections.begin(), sections.end(), IsBuildInfo);
}

Result<GoBinary> GoBinary::Find(const std::shared_ptr<const GoFile>& file, const ProcessFiles& memory, uint64_t bias,
                                int64_t deadline_ns) {
  GoBinary binary(file);
  if (!binary.FindModule(memory, bias, deadline_ns)) {
    return Error(Code::kInvalidArgument, "the description of its code was not found in its memory");
  }
  if (!binary.FindGoroutines()) return Error(Code::kInvalidArgument, "its list of goroutines was not found");
  return binary;
}

// It begins with the address of the table, relocated where the program is: hence in memory.
bool GoBinary::FindModule(const ProcessFiles& memory, uint64_t bias, int64_t deadline_ns) {
  const uint64_t likely_svma = file_->module_svma_;
  if (likely_svma != 0 && FindModuleIn({{}, likely_svma, 0, kModuleBytes}, memory, bias)) return true;
  uint64_t left_bytes = kMaxDataBytes;
  for (const NamedSection& section : file_->data_) {
    if (section.size_bytes > left_bytes || MonotonicNs() > deadline_ns) continue;
    left_bytes -= section.size_bytes;
    if (FindModuleIn(section, memory, bias)) return true;
  }
  return false;
}

bool GoBinary::FindModuleIn(const NamedSection& section, const ProcessFiles& memory, uint64_t bias) {
  std::vector<uint8_t> bytes(section.size_bytes);
  bytes.resize(memory.ReadSome(section.svma + bias, bytes));
  int candidates = 0;
  for (size_t at = (8 - section.svma % 8) % 8; at + kModuleBytes <= bytes.size(); at += 8) {
    if (LoadWord(bytes.data() + at) != file_->table_svma_ + bias) continue;
    if (++candidates > kMaxCandidates) return false;
    if (!TakeModule(bytes.data() + at, bias)) continue;
    file_->module_svma_ = section.svma + at;
    return true;
  }
  return false;
}

bool GoBinary::TakeModule(const uint8_t* module, uint64_t bias) {
  const uint64_t text = LoadWord(module + kModuleText), text_end = LoadWord(module + kModuleTextEnd);
  if (text >= text_end || text_end - text > 0xffffffffu) return false;
  // The lowest address of code is that of the first function.
  if (LoadWord(module + kModuleMinPc) < text || LoadWord(module + kModuleMinPc) >= text_end) return false;
  text_svma_ = text - bias;
  text_end_svma_ = text_end - bias;
  function_data_svma_ = LoadWord(module + kModuleFunctionData) - bias;
  return true;
}

// No symbol is needed: runtime.forEachG loads pointer and length of the slice, and these are the only two neighbours that
// it loads.
bool GoBinary::FindGoroutines() {
  const GoFunction& walk = file_->for_each_goroutine_;
  if (walk.end <= walk.entry || walk.end - walk.entry > kMaxFunctionBytes) return false;
  const uint64_t svma = text_svma_ + walk.entry;
  const std::vector<uint8_t> code = ReadCode(walk);
  std::set<uint64_t> loaded;
  for (size_t at = 0; at + 7 <= code.size(); ++at) {
    const uint8_t* bytes = code.data() + at;
    // mov disp32(%rip), %r64
    if ((bytes[0] & 0xfb) != 0x48 || bytes[1] != 0x8b || (bytes[2] & 0xc7) != 0x05) continue;
    int32_t displacement;
    memcpy(&displacement, bytes + 3, sizeof(displacement));
    loaded.insert(svma + at + 7 + static_cast<int64_t>(displacement));
  }
  for (uint64_t address : loaded) {
    if (!loaded.contains(address + 8)) continue;
    all_goroutines_svma_ = address;
    return true;
  }
  return false;
}

std::optional<GoFunction> GoBinary::FindFunction(uint64_t svma) const {
  if (svma < text_svma_ || svma >= text_end_svma_) return std::nullopt;
  return functions().FindFunction(static_cast<uint32_t>(svma - text_svma_));
}

std::vector<uint8_t> GoBinary::ReadCode(const GoFunction& function) const {
  if (function.end <= function.entry) return {};
  const auto position = file_->module_->SvmaToPosition(text_svma_ + function.entry);
  if (!position) return {};
  return file_->module_->Read(*position, function.end - function.entry).value_or(std::vector<uint8_t>());
}

std::shared_ptr<const GoLockReleases> GoBinary::LockReleases(int64_t deadline_ns) const {
  const std::lock_guard lock(file_->releases_mutex_);
  // Where the code begins is read from the process, which may say what it likes.
  if (file_->releases_ != nullptr && file_->releases_->text_svma() == text_svma_) return file_->releases_;
  const int64_t now_ns = MonotonicNs();
  if (now_ns < file_->no_releases_before_ns_) return nullptr;
  file_->releases_ = GoLockReleases::Find(*file_->module_, functions(), text_svma_, deadline_ns);
  if (file_->releases_ == nullptr) file_->no_releases_before_ns_ = now_ns + kReadAgainNs;
  return file_->releases_;
}

std::vector<GoPlace> GoBinary::Places(uint64_t svma) const {
  std::vector<GoPlace> places;
  const std::optional<GoFunction> function = FindFunction(svma);
  if (!function) return places;
  auto code = static_cast<uint32_t>(svma - text_svma_);
  int32_t index = functions().InlineIndex(*function, code);
  for (int depth = 0; depth < kMaxInlineDepth && index >= 0 && function->inline_tree; ++depth) {
    // Source: runtime.inlinedCall in runtime/symtabinl.go.
    constexpr size_t kCallBytes = 16, kFunctionId = 0, kNameOffset = 4, kParentCode = 8;
    const auto position = file_->module_->SvmaToPosition(function_data_svma_ + *function->inline_tree + kCallBytes * index);
    auto call = position ? file_->module_->Read(*position, kCallBytes) : Error(Code::kOutOfRange, "");
    if (!call) break;
    uint32_t name = 0, parent_code = 0;
    memcpy(&name, call->data() + kNameOffset, sizeof(name));
    memcpy(&parent_code, call->data() + kParentCode, sizeof(parent_code));
    if (functions().NameAt(name).empty() || parent_code >= function->end - function->entry) break;
    places.push_back({PrintedName(functions().NameAt(name)), Cut(functions().File(*function, code)),
                      functions().Line(*function, code), true, (*call)[kFunctionId] == layout().wrapper_function_id});
    code = function->entry + parent_code;
    index = functions().InlineIndex(*function, code);
  }
  places.push_back({PrintedName(function->name), Cut(functions().File(*function, code)), functions().Line(*function, code),
                    false, function->id == layout().wrapper_function_id});
  return places;
}

}  // namespace stackd
