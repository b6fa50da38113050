#include "daemon/modules/module.h"

#include <elf.h>
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "daemon/modules/byte_reader.h"

namespace stackd {
namespace {

// Far above what linkers make, and small enough to be read by the thousand.
constexpr uint64_t kMaxProgramHeaders = 1024;
constexpr uint64_t kMaxSectionHeaders = 65536;
constexpr uint64_t kMaxSectionNameBytes = 4 << 20;
constexpr uint64_t kMaxNoteBytes = 64 << 10;
constexpr uint64_t kMaxBuildIdBytes = 64;
constexpr uint64_t kPageBytes = 4096;

constexpr std::string_view kWantedSections[] = {".eh_frame", ".eh_frame_hdr", ".debug_frame",
                                                ".text",     ".PyRuntime",    ".AsyncioDebug"};

// The pointer encodings of .eh_frame_hdr (Linux Standard Base, 10.5).
constexpr uint8_t kEncodingOmit = 0xff, kEncodingPcRelative = 0x10, kEncodingDataRelative = 0x30;
constexpr uint8_t kFormatAbsolute = 0, kFormatUdata4 = 3, kFormatUdata8 = 4, kFormatSdata4 = 11, kFormatSdata8 = 12;

bool Overflows(uint64_t start, uint64_t size) { return start + size < start; }

// The address that .eh_frame_hdr, which stands at `hdr_svma`, gives for .eh_frame.
std::optional<uint64_t> EhFrameSvma(std::span<const uint8_t> hdr, uint64_t hdr_svma) {
  ByteReader reader(hdr);
  uint8_t version = reader.U8();
  uint8_t encoding = reader.U8();
  reader.Take(2);  // how the search table is encoded: it is not used
  if (version != 1 || encoding == kEncodingOmit) return std::nullopt;
  uint64_t pointer_svma = hdr_svma + reader.position();
  uint64_t value = 0;
  switch (encoding & 0x0f) {
    case kFormatUdata4:
      value = reader.U32();
      break;
    case kFormatSdata4:
      value = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(reader.U32())));
      break;
    case kFormatAbsolute:
    case kFormatUdata8:
    case kFormatSdata8:
      value = reader.U64();
      break;
    default:
      return std::nullopt;
  }
  if (!reader.ok()) return std::nullopt;
  switch (encoding & 0xf0) {
    case 0:
      return value;
    case kEncodingPcRelative:
      return value + pointer_svma;
    case kEncodingDataRelative:
      return value + hdr_svma;
    default:
      return std::nullopt;
  }
}

// The build-id among the notes; `align` is 4, or 8 as newer property notes have.
std::string FindBuildId(std::span<const uint8_t> notes, uint64_t align) {
  ByteReader reader(notes);
  auto skip_padding = [&] { reader.Seek((reader.position() + align - 1) / align * align); };
  while (reader.remaining() >= sizeof(Elf64_Nhdr)) {
    auto header = reader.Value<Elf64_Nhdr>();
    auto name = reader.Take(header.n_namesz);
    skip_padding();
    auto content = reader.Take(header.n_descsz);
    if (!reader.ok()) break;
    bool is_build_id = header.n_type == NT_GNU_BUILD_ID && name.size() == 4 && memcmp(name.data(), "GNU", 4) == 0;
    if (is_build_id && content.size() <= kMaxBuildIdBytes) return std::string(content.begin(), content.end());
    skip_padding();
  }
  return {};
}

}  // namespace

// Fills in a Module, in the order of the methods.
class ModuleParser {
 public:
  explicit ModuleParser(Module* module) : module_(*module) {}

  Result<void> Parse() {
    if (Result<void> result = ReadIdentity(); !result) return result;
    if (Result<void> result = ReadElfHeader(); !result) return result;
    if (Result<void> result = ReadProgramHeaders(); !result) return result;
    bool has_section_headers = ReadSectionHeaders();
    module_.is_memory_image_ = !has_section_headers && IsLaidOutBySvma();
    FindUnwindSections();
    ReadBuildId();
    return {};
  }

 private:
  std::unexpected<Status> Invalid(const char* what) { return Error(Code::kInvalidArgument, module_.path_ + ": " + what); }

  Result<void> ReadIdentity() {
    struct stat st;
    if (fstat(module_.fd(), &st) != 0) return Invalid("cannot be examined");
    // Anything else might make a reader wait.
    if (!S_ISREG(st.st_mode)) return Invalid("is not a regular file");
    auto to_ns = [](const timespec& time) {
      return static_cast<int64_t>(static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec));
    };
    module_.identity_ = {st.st_dev, st.st_ino, static_cast<uint64_t>(st.st_size), to_ns(st.st_mtim), to_ns(st.st_ctim)};
    return {};
  }

  Result<void> ReadElfHeader() {
    auto bytes = module_.Read(0, sizeof(Elf64_Ehdr));
    if (!bytes) return Invalid("is too short for an ELF file");
    memcpy(&elf_, bytes->data(), sizeof(elf_));
    if (memcmp(elf_.e_ident, ELFMAG, SELFMAG) != 0) return Invalid("is not an ELF file");
    if (elf_.e_ident[EI_CLASS] != ELFCLASS64 || elf_.e_ident[EI_DATA] != ELFDATA2LSB) {
      return Invalid("is not a 64-bit little-endian ELF file");
    }
    if (elf_.e_machine != EM_X86_64) return Invalid("is not an ELF file for x86-64");
    if (elf_.e_type != ET_EXEC && elf_.e_type != ET_DYN) return Invalid("is neither an executable nor a shared object");
    return {};
  }

  Result<void> ReadProgramHeaders() {
    if (elf_.e_phentsize != sizeof(Elf64_Phdr)) return Invalid("has program headers of an unknown size");
    if (elf_.e_phnum > kMaxProgramHeaders) return Invalid("has too many program headers");
    auto bytes = module_.Read(elf_.e_phoff, elf_.e_phnum * sizeof(Elf64_Phdr));
    if (!bytes) return Invalid("has its program headers beyond its end");
    program_headers_.resize(elf_.e_phnum);
    if (!bytes->empty()) memcpy(program_headers_.data(), bytes->data(), bytes->size());

    for (const Elf64_Phdr& header : program_headers_) {
      if (header.p_type != PT_LOAD) continue;
      if (Overflows(header.p_vaddr, header.p_memsz) || Overflows(header.p_offset, header.p_filesz)) continue;
      module_.segments_.push_back(
          {header.p_offset, header.p_filesz, header.p_vaddr, header.p_memsz, (header.p_flags & PF_X) != 0});
    }
    uint64_t lowest = std::numeric_limits<uint64_t>::max();
    for (const Segment& segment : module_.segments_) lowest = std::min(lowest, segment.svma);
    module_.lowest_svma_ = module_.segments_.empty() ? 0 : lowest;
    return {};
  }

  // False if there are none, or what stands in their place is something else, as in an image copied from memory.
  bool ReadSectionHeaders() {
    if (elf_.e_shoff == 0 || elf_.e_shentsize != sizeof(Elf64_Shdr)) return false;
    auto first_bytes = module_.Read(elf_.e_shoff, sizeof(Elf64_Shdr));
    if (!first_bytes) return false;
    Elf64_Shdr first;
    memcpy(&first, first_bytes->data(), sizeof(first));
    if (first.sh_type != SHT_NULL || first.sh_addr != 0 || first.sh_offset != 0) return false;
    // The first header has the numbers that do not fit into the ELF header.
    uint64_t count = elf_.e_shnum != 0 ? elf_.e_shnum : first.sh_size;
    uint64_t names_index = elf_.e_shstrndx != SHN_XINDEX ? elf_.e_shstrndx : first.sh_link;
    if (count > kMaxSectionHeaders || names_index >= count) return false;

    auto bytes = module_.Read(elf_.e_shoff, count * sizeof(Elf64_Shdr));
    if (!bytes) return false;
    std::vector<Elf64_Shdr> headers(count);
    memcpy(headers.data(), bytes->data(), bytes->size());
    const Elf64_Shdr& names_header = headers[names_index];
    if (names_header.sh_type != SHT_STRTAB) return false;
    auto names = module_.Read(names_header.sh_offset, names_header.sh_size, kMaxSectionNameBytes);
    if (!names) return false;

    for (const Elf64_Shdr& header : headers) AddSection(header, *names);
    return true;
  }

  void AddSection(const Elf64_Shdr& header, const std::vector<uint8_t>& names) {
    if (header.sh_type == SHT_NULL || header.sh_type == SHT_NOBITS) return;
    if (!LiesInFile(header.sh_offset, header.sh_size)) return;
    if (header.sh_name >= names.size()) return;
    // No further than the longest wanted name: thousands of headers may share megabytes without a NUL.
    std::string_view name(reinterpret_cast<const char*>(names.data()) + header.sh_name,
                          std::min<uint64_t>(names.size() - header.sh_name, 16));
    name = name.substr(0, name.find('\0'));
    bool wanted = std::ranges::find(kWantedSections, name) != std::end(kWantedSections);
    if (!wanted || module_.FindSection(name) != nullptr) return;
    bool loaded = (header.sh_flags & SHF_ALLOC) != 0;
    bool compressed = (header.sh_flags & SHF_COMPRESSED) != 0;
    module_.sections_.emplace_back(name,
                                   Section{loaded ? header.sh_addr : 0, header.sh_offset, header.sh_size, compressed});
  }

  // Whether a file without section headers is laid out as memory is, not as a file. Only one of the two places where
  // .eh_frame_hdr would be holds one. Where both layouts are the same it reads as a file.
  bool IsLaidOutBySvma() const {
    bool same = std::ranges::all_of(
        module_.segments_, [this](const Segment& segment) { return segment.file_offset == PositionInImage(segment.svma); });
    if (same) return false;
    const Elf64_Phdr* header = FindProgramHeader(PT_GNU_EH_FRAME);
    if (header == nullptr) return false;
    return HasEhFrameHdrAt(PositionInImage(header->p_vaddr), header->p_vaddr) &&
           !HasEhFrameHdrAt(header->p_offset, header->p_vaddr);
  }

  bool HasEhFrameHdrAt(uint64_t file_offset, uint64_t svma) const {
    auto bytes = module_.Read(file_offset, 12);
    if (!bytes) return false;
    std::optional<uint64_t> eh_frame_svma = EhFrameSvma(*bytes, svma);
    return eh_frame_svma && SegmentOf(*eh_frame_svma) != nullptr;
  }

  // Where there were no section headers, or they do not tell.
  void FindUnwindSections() {
    const Elf64_Phdr* header = FindProgramHeader(PT_GNU_EH_FRAME);
    if (header == nullptr) return;
    uint64_t hdr_offset = module_.is_memory_image_ ? PositionInImage(header->p_vaddr) : header->p_offset;
    if (!LiesInFile(hdr_offset, header->p_filesz)) return;
    if (module_.FindSection(".eh_frame_hdr") == nullptr) {
      module_.sections_.emplace_back(".eh_frame_hdr", Section{header->p_vaddr, hdr_offset, header->p_filesz, false});
    }
    if (module_.FindSection(".eh_frame") != nullptr) return;
    auto bytes = module_.Read(hdr_offset, std::min<uint64_t>(header->p_filesz, 12));
    if (!bytes) return;
    std::optional<uint64_t> svma = EhFrameSvma(*bytes, header->p_vaddr);
    const Segment* segment = svma ? SegmentOf(*svma) : nullptr;
    if (segment == nullptr) return;
    uint64_t into_segment = *svma - segment->svma;
    uint64_t file_offset = module_.is_memory_image_ ? PositionInImage(*svma) : segment->file_offset + into_segment;
    if (file_offset >= module_.identity_.size_bytes) return;
    uint64_t size_bytes = std::min(segment->file_bytes - into_segment, module_.identity_.size_bytes - file_offset);
    module_.sections_.emplace_back(".eh_frame", Section{*svma, file_offset, size_bytes, false});
  }

  void ReadBuildId() {
    int notes_read = 0;
    for (const Elf64_Phdr& header : program_headers_) {
      if (header.p_type != PT_NOTE || !module_.build_id_.empty()) continue;
      if (++notes_read > 16) return;
      uint64_t file_offset = module_.is_memory_image_ ? PositionInImage(header.p_vaddr) : header.p_offset;
      auto notes = module_.Read(file_offset, header.p_filesz, kMaxNoteBytes);
      if (notes) module_.build_id_ = FindBuildId(*notes, header.p_align == 8 ? 8 : 4);
    }
  }

  const Elf64_Phdr* FindProgramHeader(uint32_t type) const {
    auto found = std::ranges::find(program_headers_, type, &Elf64_Phdr::p_type);
    return found == program_headers_.end() ? nullptr : &*found;
  }

  // The segment that has `svma` in its file part.
  const Segment* SegmentOf(uint64_t svma) const {
    for (const Segment& segment : module_.segments_) {
      if (svma >= segment.svma && svma - segment.svma < segment.file_bytes) return &segment;
    }
    return nullptr;
  }

  uint64_t PositionInImage(uint64_t svma) const { return svma - module_.lowest_svma_ / kPageBytes * kPageBytes; }

  bool LiesInFile(uint64_t file_offset, uint64_t size_bytes) const {
    return file_offset <= module_.identity_.size_bytes && size_bytes <= module_.identity_.size_bytes - file_offset;
  }

  Module& module_;
  Elf64_Ehdr elf_{};
  std::vector<Elf64_Phdr> program_headers_;
};

Result<std::shared_ptr<const Module>> Module::Open(Fd fd, std::string path) {
  std::shared_ptr<Module> module(new Module);
  module->fd_ = std::move(fd);
  module->path_ = std::move(path);
  if (Result<void> parsed = ModuleParser(module.get()).Parse(); !parsed) return std::unexpected(parsed.error());
  return module;
}

const Section* Module::FindSection(std::string_view name) const {
  auto found = std::ranges::find(sections_, name, &std::pair<std::string, Section>::first);
  return found == sections_.end() ? nullptr : &found->second;
}

Result<std::vector<uint8_t>> Module::Read(uint64_t file_offset, uint64_t size_bytes, uint64_t limit_bytes) const {
  if (size_bytes > limit_bytes) {
    return Error(Code::kResourceExhausted, path_ + ": " + std::to_string(size_bytes) + " bytes are more than the limit");
  }
  // Before the memory is taken: a header may promise any size.
  if (file_offset > identity_.size_bytes || size_bytes > identity_.size_bytes - file_offset) {
    return Error(Code::kOutOfRange, path_ + ": ends before what its headers promise");
  }
  std::vector<uint8_t> bytes(size_bytes);
  for (size_t done = 0; done < size_bytes;) {
    ssize_t got = pread(fd_.get(), bytes.data() + done, size_bytes - done, static_cast<off_t>(file_offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error(Code::kDataLoss, path_ + ": cannot be read, or was cut short");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

std::optional<uint64_t> Module::FileOffsetToSvma(uint64_t file_offset) const {
  for (const Segment& segment : segments_) {
    if (file_offset >= segment.file_offset && file_offset - segment.file_offset < segment.file_bytes) {
      return segment.svma + (file_offset - segment.file_offset);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> Module::SvmaToPosition(uint64_t svma) const {
  for (const Segment& segment : segments_) {
    if (svma < segment.svma || svma - segment.svma >= segment.file_bytes) continue;
    return is_memory_image_ ? svma - lowest_svma_ / kPageBytes * kPageBytes : segment.file_offset + (svma - segment.svma);
  }
  return std::nullopt;
}

}  // namespace stackd
