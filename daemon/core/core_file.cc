#include "daemon/core/core_file.h"

#include <elf.h>
#include <string.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/core/core_notes.h"

namespace stackd {
namespace {

constexpr size_t kSegmentsAtOnce = 4096;
constexpr uint64_t kMaxMappedFilesBytes = 16u << 20;
// Programs of the other formats that a core is kept in.
struct Packed {
  std::string_view magic;
  const char* program;
};
constexpr Packed kPacked[] = {
    {"\x28\xb5\x2f\xfd", "zstd -d"}, {"\x04\x22\x4d\x18", "lz4 -d"}, {"\xfd\x37zX", "xz -d"}, {"\x1f\x8b", "gzip -d"}};

template <typename T>
bool ReadAt(int fd, uint64_t offset, T* out) {
  return pread(fd, out, sizeof(T), static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof(T));
}

int64_t ToNs(const auto& time) {
  constexpr int64_t kNsPerUs = 1000, kMaxSeconds = INT64_MAX / kNsPerSecond / 4;
  return std::clamp<int64_t>(time.tv_sec, 0, kMaxSeconds) * kNsPerSecond +
         std::clamp<int64_t>(time.tv_usec, 0, 999'999) * kNsPerUs;
}

}  // namespace

class CoreParser {
 public:
  CoreParser(Fd file, const std::string& name) : name_(name) { core_.file_ = std::move(file); }

  Result<CoreFile> Parse() {
    struct stat status;
    if (fstat(core_.fd(), &status) != 0 || !S_ISREG(status.st_mode)) return Refuse("is no regular file");
    size_bytes_ = static_cast<uint64_t>(status.st_size);
    core_.written_wall_ns_ = status.st_mtim.tv_sec * kNsPerSecond + status.st_mtim.tv_nsec;
    if (auto checked = CheckHeader(); !checked) return std::unexpected(checked.error());
    ReadSegments();
    for (const auto& [offset, size] : note_segments_) ReadNotes(offset, size);
    if (core_.threads_.empty()) {
      return Refuse(is_cut() ? "is cut before its threads: " + CutInWords() : "has no thread");
    }
    core_.is_cut_ = is_cut();
    if (is_cut()) core_.notes_.push_back("the core file is cut: " + CutInWords() + " are there");
    SortSegments();
    NoteWhatWasLeftOut();
    return std::move(core_);
  }

 private:
  std::unexpected<Status> Refuse(const std::string& what) const {
    return Error(Code::kInvalidArgument, name_ + " " + what);
  }

  bool is_cut() const { return whole_bytes_ > size_bytes_; }
  std::string CutInWords() const { return std::to_string(size_bytes_) + " of " + std::to_string(whole_bytes_) + " bytes"; }

  Result<void> CheckHeader() {
    std::array<char, 8> magic{};
    if (pread(core_.fd(), magic.data(), magic.size(), 0) <= 0) return Refuse("is empty");
    for (const auto& [begin, program] : kPacked) {
      if (!std::string_view(magic.data(), magic.size()).starts_with(begin)) continue;
      return Refuse(std::string("is compressed: unpack it first, as with ") + program);
    }
    const bool is_elf = ReadAt(core_.fd(), 0, &header_) && memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0;
    if (!is_elf || header_.e_type != ET_CORE) return Refuse("is no core file");
    const bool is_known = header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_ident[EI_DATA] == ELFDATA2LSB &&
                          header_.e_machine == EM_X86_64 && header_.e_phentsize == sizeof(Elf64_Phdr);
    if (!is_known) return Refuse("is the core of a program that is not for x86-64");
    core_.is_by_debugger_ = header_.e_shnum > 1;
    return {};
  }

  uint64_t SegmentCount() const {
    if (header_.e_phnum != PN_XNUM) return header_.e_phnum;
    Elf64_Shdr first;
    return ReadAt(core_.fd(), header_.e_shoff, &first) ? first.sh_info : PN_XNUM;
  }

  void ReadSegments() {
    const uint64_t count = SegmentCount();
    left_out_.segments = count - std::min<uint64_t>(count, CoreFile::kMaxSegments);
    const uint64_t end = std::min<uint64_t>(count, CoreFile::kMaxSegments);
    std::vector<Elf64_Phdr> some(kSegmentsAtOnce);
    for (uint64_t at = 0; at < end;) {
      const size_t want = std::min<uint64_t>(end - at, some.size());
      const ssize_t got = pread(core_.fd(), some.data(), want * sizeof(Elf64_Phdr),
                                static_cast<off_t>(header_.e_phoff + at * sizeof(Elf64_Phdr)));
      const size_t whole = got > 0 ? static_cast<size_t>(got) / sizeof(Elf64_Phdr) : 0;
      for (size_t i = 0; i < whole; i++) AddSegment(some[i]);
      at += whole;
      if (whole == want) continue;
      left_out_.segments += end - at;
      return;
    }
  }

  void AddSegment(const Elf64_Phdr& header) {
    uint64_t end;
    if (header.p_type != PT_LOAD && header.p_type != PT_NOTE) return;
    if (__builtin_add_overflow(header.p_offset, header.p_filesz, &end) || end > INT64_MAX) {
      left_out_.segments++;
      return;
    }
    whole_bytes_ = std::max(whole_bytes_, end);
    const uint64_t file_bytes = std::min(end, std::max(size_bytes_, header.p_offset)) - header.p_offset;
    if (header.p_type == PT_NOTE) {
      note_segments_.emplace_back(header.p_offset, file_bytes);
      return;
    }
    CoreSegment segment{.start_avma = header.p_vaddr,
                        .file_offset = header.p_offset,
                        .file_bytes = std::min(file_bytes, header.p_memsz),
                        .cut = file_bytes < header.p_filesz,
                        .readable = (header.p_flags & PF_R) != 0,
                        .writable = (header.p_flags & PF_W) != 0,
                        .executable = (header.p_flags & PF_X) != 0};
    if (header.p_memsz == 0) return;
    if (__builtin_add_overflow(header.p_vaddr, header.p_memsz, &segment.end_avma)) {
      left_out_.segments++;
      return;
    }
    core_.segments_.push_back(segment);
  }

  void SortSegments() {
    std::ranges::stable_sort(core_.segments_, {}, &CoreSegment::start_avma);
    uint64_t end_avma = 0;
    const auto overlaps = [&](const CoreSegment& segment) {
      if (segment.start_avma < end_avma) return true;
      end_avma = segment.end_avma;
      return false;
    };
    left_out_.segments += std::erase_if(core_.segments_, overlaps);
  }

  void ReadNotes(uint64_t offset, uint64_t size_bytes) {
    CoreNotes notes(core_.fd(), offset, size_bytes);
    while (auto note = notes.Next()) {
      if (++note_count_ > CoreFile::kMaxNotes) {
        left_out_.notes = true;
        return;
      }
      Take(notes, *note);
    }
  }

  void Take(const CoreNotes& notes, const CoreNote& note) {
    switch (note.type) {
      case NT_PRSTATUS:
        return TakeThread(notes, note);
      case NT_SIGINFO:
        return TakeSignal(notes, note);
      case NT_PRPSINFO:
        return TakeProcess(notes, note);
      case NT_AUXV:
        return TakeAuxiliary(notes.Read(note, 1u << 16));
      case NT_FILE:
        return TakeMappings(notes.Read(note, kMaxMappedFilesBytes));
      default:
        return;
    }
  }

  void TakeThread(const CoreNotes& notes, const CoreNote& note) {
    elf_prstatus status;
    if (!notes.ReadInto(note, &status) || status.pr_pid <= 0 || !tids_.insert(status.pr_pid).second) {
      left_out_.threads++;
      return;
    }
    if (core_.threads_.size() == CoreFile::kMaxThreads) {
      left_out_.threads++;
      return;
    }
    CoreThread thread{.tid = status.pr_pid, .cpu_ns = ToNs(status.pr_utime) + ToNs(status.pr_stime)};
    static_assert(sizeof(thread.registers) == sizeof(status.pr_reg));
    memcpy(&thread.registers, &status.pr_reg, sizeof(thread.registers));
    core_.threads_.push_back(thread);
  }

  // That of the first thread: it stands behind that thread's registers. A debugger's core has one for each.
  void TakeSignal(const CoreNotes& notes, const CoreNote& note) {
    siginfo_t signal;
    if (!core_.signal_ && core_.threads_.size() <= 1 && notes.ReadInto(note, &signal)) core_.signal_ = signal;
  }

  void TakeProcess(const CoreNotes& notes, const CoreNote& note) {
    elf_prpsinfo process;
    if (!notes.ReadInto(note, &process)) return;
    core_.pid_ = process.pr_pid;
    core_.uid_ = static_cast<int32_t>(process.pr_uid);
    core_.name_ = FieldText(process.pr_fname);
    const std::string line = FieldText(process.pr_psargs);
    core_.argv0_ = line.substr(0, line.find(' '));
  }

  void TakeAuxiliary(const std::string& bytes) {
    for (size_t at = 0; at + sizeof(Elf64_auxv_t) <= bytes.size(); at += sizeof(Elf64_auxv_t)) {
      Elf64_auxv_t entry;
      memcpy(&entry, bytes.data() + at, sizeof(entry));
      if (entry.a_type == AT_NULL) return;
      if (entry.a_type == AT_SYSINFO_EHDR) core_.auxiliary_.vdso_avma = entry.a_un.a_val;
      if (entry.a_type == AT_ENTRY) core_.auxiliary_.entry_avma = entry.a_un.a_val;
      if (entry.a_type == AT_RANDOM) core_.auxiliary_.main_stack_avma = entry.a_un.a_val;
    }
  }

  void TakeMappings(const std::string& bytes) {
    if (core_.mappings_.empty()) core_.mappings_ = ParseCoreMappings(bytes);
  }

  void NoteWhatWasLeftOut() {
    const auto note = [&](uint64_t count, const char* what) {
      if (count > 0)
        core_.notes_.push_back(std::to_string(count) + " " + what + " of the core make no sense, or are too many");
    };
    note(left_out_.segments, "segments");
    note(left_out_.threads, "threads");
    if (left_out_.notes) core_.notes_.push_back("the core has more notes than are read: threads may be missing");
    if (core_.mappings_.empty())
      core_.notes_.push_back("the core does not say which files were mapped (NT_FILE): code has no names");
  }

  const std::string& name_;
  CoreFile core_;
  Elf64_Ehdr header_{};
  uint64_t size_bytes_ = 0;
  uint64_t whole_bytes_ = 0;                                  // that it must have
  std::vector<std::pair<uint64_t, uint64_t>> note_segments_;  // offset, bytes
  std::unordered_set<int32_t> tids_;
  size_t note_count_ = 0;
  struct {
    uint64_t segments = 0, threads = 0;
    bool notes = false;
  } left_out_;
};

Result<CoreFile> CoreFile::Open(Fd file, const std::string& name) { return CoreParser(std::move(file), name).Parse(); }

}  // namespace stackd
