#include "daemon/symbolize/module_symbols.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/base/result.h"
#include "daemon/base/text.h"
#include "daemon/symbolize/demangle.h"
#include "daemon/symbolize/inflate.h"

namespace stackd {

ModuleSymbols::ModuleSymbols(Fd fd, std::string path, const DebugFiles* debug_files, uint64_t image_limit_bytes)
    : path_(std::move(path)), debug_files_(debug_files), image_limit_bytes_(image_limit_bytes) {
  module_ = ElfFile::OpenFd(std::move(fd));
  if (module_ == nullptr) {
    no_names_reason_ = "no symbols: the ELF file cannot be read";
    dwarf_opened_ = true;
    return;
  }
  // gdb's order: of two symbols for one address, the one found first wins.
  AddSource(module_, SymbolQuality::kSymtab);
  if (!module_->has_debug_info()) {
    debug_file_ = debug_files_->FindFor(*module_, path_);
    if (debug_file_ != nullptr) AddSource(debug_file_, SymbolQuality::kSymtab);
  }
  OpenMiniDebugInfo();
  if (sources_.empty()) no_names_reason_ = "no symbols: " + WhereSearched();
}

void ModuleSymbols::AddSource(std::shared_ptr<const ElfFile> file, SymbolQuality quality) {
  SymbolTable table = SymbolTable::Read(*file);
  if (table.empty()) return;
  if (table.is_dynamic()) quality = SymbolQuality::kDynsym;
  quality_ = std::max(quality_, quality);
  sources_.push_back({std::move(file), std::move(table), quality});
}

void ModuleSymbols::OpenMiniDebugInfo() {
  std::optional<ElfSection> section = module_->FindSection(".gnu_debugdata");
  if (!section) return;
  auto image = OpenXzImage(ElfFile::RawBytes(*section), image_limit_bytes_);
  if (image) AddSource(*std::move(image), SymbolQuality::kMiniDebugInfo);
}

std::string ModuleSymbols::WhereSearched() const {
  if (module_->build_id().empty())
    return "the file has no build-id, and no debug file was found in " + debug_files_->description();
  return "build-id " + HexOfBytes(module_->build_id()) + " was not found in " + debug_files_->description();
}

void ModuleSymbols::OpenDwarf() {
  dwarf_opened_ = true;
  std::shared_ptr<const ElfFile> file = module_->has_debug_info() ? module_ : debug_file_;
  if (file == nullptr || !file->has_debug_info()) {
    no_lines_reason_ = "no lines: " + WhereSearched();
    return;
  }
  std::unique_ptr<ElfFile> dwz = debug_files_->FindDwzOf(*file);
  bool lacks_dwz = dwz == nullptr && file->FindSection(".gnu_debugaltlink").has_value();
  auto inflate = [this](const ElfFile& packed) {
    auto plain = InflateDwarf(packed, image_limit_bytes_);
    if (!plain && plain.error().code == Code::kResourceExhausted) {
      no_lines_reason_ = "no lines: the decompressed debug data of " + path_ + " needs more than " +
                         std::to_string(image_limit_bytes_ >> 20) + " MiB";
    } else if (!plain) {
      no_lines_reason_ = "no lines: " + plain.error().message;
    }
    return plain;
  };
  if (HasCompressedDwarf(*file)) {
    auto plain = inflate(*file);
    if (!plain) return;
    file = *std::move(plain);
  }
  if (dwz != nullptr && HasCompressedDwarf(*dwz)) {
    auto plain = inflate(*dwz);
    if (!plain) return;
    dwz = *std::move(plain);
  }
  auto index = DwarfIndex::Open(std::move(file), std::move(dwz), module_->first_code_svma());
  if (!index) {
    no_lines_reason_ = "no lines: " + index.error().message;
    return;
  }
  dwarf_ = *std::move(index);
  quality_ = SymbolQuality::kDwarf;
  if (lacks_dwz) no_lines_reason_ = "some names are in a dwz file that was not found in " + debug_files_->description();
}

void ModuleSymbols::DropDwarf() {
  if (dwarf_ == nullptr) return;
  dwarf_.reset();
  dwarf_opened_ = false;
}

void ModuleSymbols::ReleasePages() const {
  if (module_ != nullptr) module_->ReleasePages();
  if (debug_file_ != nullptr) debug_file_->ReleasePages();
  if (dwarf_ != nullptr) dwarf_->ReleasePages();
}

SymbolTable::Match ModuleSymbols::FindSymbol(uint64_t svma) const {
  SymbolTable::Match best{{}, 0};
  for (const Source& source : sources_) {
    std::optional<SymbolTable::Match> match = source.table.Find(svma);
    if (match && (best.name.empty() || match->svma > best.svma)) best = *match;
  }
  return best;
}

SourceLocation ModuleSymbols::Name(uint64_t svma) {
  SourceLocation location;
  SymbolTable::Match symbol = FindSymbol(svma);
  if (symbol.name.empty()) {
    location.unnamed_reason = !no_names_reason_.empty() ? no_names_reason_ : "no symbol covers this address";
  } else {
    location.frames.push_back(
        {.function = Demangle(symbol.name, ReturnType::kKeep), .file = {}, .language = LanguageOfName(symbol.name)});
  }
  return location;
}

SourceLocation ModuleSymbols::Locate(uint64_t svma) {
  if (!dwarf_opened_) OpenDwarf();
  SourceLocation location;
  if (dwarf_ != nullptr) {
    location.frames = dwarf_->Find(svma, [this](uint64_t address) { return FindSymbol(address).name; });
  }
  if (location.frames.empty()) {
    location = Name(svma);
    if (!location.frames.empty()) {
      location.unnamed_reason =
          !no_lines_reason_.empty() ? no_lines_reason_ : "no lines: the debug data does not cover this address";
    }
    return location;
  }
  SourceFrame& function = location.frames.back();
  if (function.function.empty()) function.function = Demangle(FindSymbol(svma).name, ReturnType::kKeep);
  if (std::any_of(location.frames.begin(), location.frames.end(),
                  [](const SourceFrame& f) { return f.function.empty(); })) {
    location.unnamed_reason = !no_lines_reason_.empty() ? no_lines_reason_ : "the debug data has no name for this function";
  } else if (location.frames.front().line == 0) {
    location.unnamed_reason = "the debug data has no line for this address";
  }
  return location;
}

}  // namespace stackd
