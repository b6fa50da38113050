#include "daemon/managed/go/go_binary.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/managed/go/elf_sections.h"

namespace stackd {
namespace {

constexpr uint64_t kMaxTableBytes = 256 << 20;
constexpr uint64_t kMaxDataBytes = 64 << 20;
constexpr uint64_t kMaxFunctionBytes = 4096;
constexpr uint64_t kMaxVersionBytes = 128;
constexpr int kMaxInlineDepth = 128;

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

// "main.f[go.shape.int]" -> "main.f[...]", as the runtime prints it.
std::string PrintedName(std::string_view name) {
  const size_t open = name.find('[');
  const size_t close = name.rfind(']');
  if (open == name.npos || close == name.npos || close < open) return ToValidUtf8(name);
  return ToValidUtf8(std::string(name.substr(0, open)) + "[...]" + std::string(name.substr(close + 1)));
}

}  // namespace

class GoBinaryParser {
 public:
  GoBinaryParser(const std::shared_ptr<const Module>& module, const ProcessFiles& memory, uint64_t bias)
      : memory_(memory), bias_(bias), sections_(LoadedSections(*module)) {
    binary_.module_ = module;
  }

  Result<std::shared_ptr<const GoBinary>> Parse() {
    if (auto failed = ReadVersion()) return std::unexpected(std::move(*failed));
    if (auto failed = ReadFunctions()) return std::unexpected(std::move(*failed));
    if (!FindModule()) return Error(Code::kInvalidArgument, "the description of its code was not found in its memory");
    if (!FindGoroutines()) return Error(Code::kInvalidArgument, "its list of goroutines was not found");
    return std::make_shared<const GoBinary>(std::move(binary_));
  }

 private:
  std::optional<Status> ReadVersion() {
    constexpr std::string_view kMagic = "\xff Go buildinf:";
    constexpr size_t kFlags = 15, kInlineStrings = 2, kStrings = 32;
    auto section = std::find_if(sections_.begin(), sections_.end(), IsBuildInfo);
    if (section == sections_.end()) return Status{Code::kInvalidArgument, "it does not say of which version it is"};
    auto bytes =
        binary_.module_->Read(section->file_offset, std::min(section->size_bytes, kStrings + 2 + kMaxVersionBytes));
    if (!bytes || bytes->size() <= kStrings || memcmp(bytes->data(), kMagic.data(), kMagic.size()) != 0 ||
        ((*bytes)[kFlags] & kInlineStrings) == 0) {
      return Status{Code::kInvalidArgument, "it does not say of which version it is"};
    }
    // The length is a varint; versions are shorter than 128 bytes.
    const size_t length = (*bytes)[kStrings];
    if (length >= kMaxVersionBytes || length > bytes->size() - kStrings - 1) {
      return Status{Code::kInvalidArgument, "it does not say of which version it is"};
    }
    binary_.version_.assign(reinterpret_cast<const char*>(bytes->data()) + kStrings + 1, length);
    binary_.version_ = ToValidUtf8(binary_.version_);
    binary_.layout_ = FindGoLayout(binary_.version_);
    if (binary_.layout_ == nullptr) {
      return Status{Code::kUnimplemented,
                    "it is built by " + binary_.version_ + ", and goroutines are known of go1.21 to go1.26"};
    }
    return std::nullopt;
  }

  std::optional<Status> ReadFunctions() {
    auto section = std::find_if(sections_.begin(), sections_.end(), IsTable);
    // Where a position-independent program was linked by another linker, the table is a part of its constant data.
    if (section == sections_.end()) return ReadFunctionsOutOfData();
    return ReadFunctionsAt(section->svma, section->file_offset, section->size_bytes);
  }

  std::optional<Status> ReadFunctionsOutOfData() {
    constexpr uint8_t kStart[] = {0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8};
    for (const NamedSection& section : sections_) {
      if (section.name != ".data.rel.ro" || section.size_bytes > kMaxTableBytes) continue;
      auto bytes = binary_.module_->Read(section.file_offset, section.size_bytes, kMaxTableBytes);
      if (!bytes) continue;
      for (size_t at = (8 - section.svma % 8) % 8; at + 72 <= bytes->size(); at += 8) {
        if (memcmp(bytes->data() + at, kStart, sizeof(kStart)) != 0) continue;
        if (!ReadFunctionsAt(section.svma + at, section.file_offset + at, section.size_bytes - at)) return std::nullopt;
      }
    }
    return Status{Code::kInvalidArgument, "its table of functions was not found"};
  }

  std::optional<Status> ReadFunctionsAt(uint64_t svma, uint64_t file_offset, uint64_t size_bytes) {
    auto bytes = binary_.module_->Read(file_offset, size_bytes, kMaxTableBytes);
    if (!bytes) return std::move(bytes.error());
    auto table = Pclntab::Parse(std::move(*bytes));
    if (!table) return std::move(table.error());
    binary_.functions_ = std::move(*table);
    table_svma_ = svma;
    return std::nullopt;
  }

  // It begins with the address of the table, relocated where the program is: hence in memory.
  bool FindModule() {
    for (const NamedSection& section : sections_) {
      if (!MayHoldModule(section) || section.size_bytes > kMaxDataBytes) continue;
      std::vector<uint8_t> bytes(section.size_bytes);
      bytes.resize(memory_.ReadSome(section.svma + bias_, bytes));
      for (size_t at = (8 - section.svma % 8) % 8; at + kModuleBytes <= bytes.size(); at += 8) {
        if (LoadWord(bytes.data() + at) == table_svma_ + bias_ && TakeModule(bytes.data() + at)) return true;
      }
    }
    return false;
  }

  bool TakeModule(const uint8_t* module) {
    const uint64_t text = LoadWord(module + kModuleText), text_end = LoadWord(module + kModuleTextEnd);
    if (text >= text_end || text_end - text > 0xffffffffu) return false;
    const auto first = binary_.functions_->FindFunctionByName("runtime.forEachG");
    // The lowest address of code is that of the first function.
    if (!first || LoadWord(module + kModuleMinPc) < text || LoadWord(module + kModuleMinPc) >= text_end) return false;
    binary_.text_svma_ = text - bias_;
    binary_.text_end_svma_ = text_end - bias_;
    binary_.function_data_svma_ = LoadWord(module + kModuleFunctionData) - bias_;
    return true;
  }

  // No symbol is needed: runtime.forEachG loads pointer and length of the slice, and these are the only two neighbours
  // that it loads.
  bool FindGoroutines() {
    const auto walk = binary_.functions_->FindFunctionByName("runtime.forEachG");
    if (!walk || walk->end <= walk->entry || walk->end - walk->entry > kMaxFunctionBytes) return false;
    const uint64_t svma = binary_.text_svma_ + walk->entry;
    const auto position = binary_.module_->SvmaToPosition(svma);
    if (!position) return false;
    auto code = binary_.module_->Read(*position, walk->end - walk->entry);
    if (!code) return false;
    std::set<uint64_t> loaded;
    for (size_t at = 0; at + 7 <= code->size(); ++at) {
      const uint8_t* bytes = code->data() + at;
      // mov disp32(%rip), %r64
      if ((bytes[0] & 0xfb) != 0x48 || bytes[1] != 0x8b || (bytes[2] & 0xc7) != 0x05) continue;
      int32_t displacement;
      memcpy(&displacement, bytes + 3, sizeof(displacement));
      loaded.insert(svma + at + 7 + static_cast<int64_t>(displacement));
    }
    for (uint64_t address : loaded) {
      if (!loaded.contains(address + 8)) continue;
      binary_.all_goroutines_svma_ = address;
      return true;
    }
    return false;
  }

  const ProcessFiles& memory_;
  uint64_t bias_;
  std::vector<NamedSection> sections_;
  uint64_t table_svma_ = 0;
  GoBinary binary_;
};

Result<std::shared_ptr<const GoBinary>> GoBinary::Open(const std::shared_ptr<const Module>& module,
                                                       const ProcessFiles& memory, uint64_t bias) {
  return GoBinaryParser(module, memory, bias).Parse();
}

bool GoBinary::IsGo(const Module& module) {
  const std::vector<NamedSection> sections = LoadedSections(module);
  return std::any_of(sections.begin(), sections.end(), IsBuildInfo);
}

std::optional<GoFunction> GoBinary::FindFunction(uint64_t svma) const {
  if (svma < text_svma_ || svma >= text_end_svma_) return std::nullopt;
  return functions_->FindFunction(static_cast<uint32_t>(svma - text_svma_));
}

std::vector<GoPlace> GoBinary::Places(uint64_t svma) const {
  std::vector<GoPlace> places;
  const std::optional<GoFunction> function = FindFunction(svma);
  if (!function) return places;
  auto code = static_cast<uint32_t>(svma - text_svma_);
  int32_t index = functions_->InlineIndex(*function, code);
  for (int depth = 0; depth < kMaxInlineDepth && index >= 0 && function->inline_tree; ++depth) {
    // Source: runtime.inlinedCall in runtime/symtabinl.go.
    constexpr size_t kCallBytes = 16, kFunctionId = 0, kNameOffset = 4, kParentCode = 8;
    const auto position = module_->SvmaToPosition(function_data_svma_ + *function->inline_tree + kCallBytes * index);
    auto call = position ? module_->Read(*position, kCallBytes) : Error(Code::kOutOfRange, "");
    if (!call) break;
    uint32_t name = 0, parent_code = 0;
    memcpy(&name, call->data() + kNameOffset, sizeof(name));
    memcpy(&parent_code, call->data() + kParentCode, sizeof(parent_code));
    if (functions_->NameAt(name).empty() || parent_code >= function->end - function->entry) break;
    places.push_back({PrintedName(functions_->NameAt(name)), ToValidUtf8(functions_->File(*function, code)),
                      functions_->Line(*function, code), true, (*call)[kFunctionId] == layout_->wrapper_function_id});
    code = function->entry + parent_code;
    index = functions_->InlineIndex(*function, code);
  }
  places.push_back({PrintedName(function->name), ToValidUtf8(functions_->File(*function, code)),
                    functions_->Line(*function, code), false, function->id == layout_->wrapper_function_id});
  return places;
}

}  // namespace stackd
