#include "daemon/core/mapped_copies.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "daemon/base/regular_file.h"
#include "daemon/base/text.h"
#include "daemon/modules/module.h"

namespace stackd {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
// An ELF header without what it leads to proves nothing.
constexpr size_t kLeastBytes = 1024, kPageBytes = 4096;
// Where a build-id is looked for: linkers put it in front.
constexpr size_t kMostBytes = 64u << 10;

std::string ReadBegin(const Fd& file, size_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  const ssize_t got = pread(file.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

// The build-id of the file that begins so; empty: it has none, or none so far in front.
std::string BuildIdIn(const std::string& first_bytes) {
  Fd image(memfd_create("stackd-first-bytes", MFD_CLOEXEC));
  const bool is_written = image.valid() && write(image.get(), first_bytes.data(), first_bytes.size()) ==
                                               static_cast<ssize_t>(first_bytes.size());
  const auto module = is_written ? Module::Open(std::move(image), "") : Error(Code::kInternal, "");
  return module ? (*module)->build_id() : "";
}

// The linker of Go writes this note in place of a build-id.
bool HasGoBuildId(const std::string& first_page) {
  constexpr std::string_view kNote("\4\0\0\0Go\0\0", 8);  // its type and its name
  return first_page.find(kNote) != std::string::npos;
}

}  // namespace

void MappedCopies::Take(const CoreLayoutFile& mapped, const std::string& path, const std::string& way_out, Copy* copy) {
  const std::string ran = FirstBytes(*core_, *layout_, mapped, kMostBytes), ran_build_id = BuildIdIn(ran);
  const bool is_gone = path.empty() || path[0] != '/' || path.ends_with(kDeleted);
  Fd file = is_gone ? Fd() : OpenRegularFile(path, /*follow_link=*/true);
  copy->is_missing = !file.valid();
  if (copy->is_missing) {
    const std::string build_id = ran_build_id.empty() ? "" : " (build-id " + HexOfBytes(ran_build_id) + ")";
    copy->problem = path + " is not here, and its functions have no names" + build_id + ": " + way_out;
    return;
  }
  const std::string not_comparable = path + " cannot be compared with the one that ran: the core ";
  if (ran.size() < kLeastBytes) {
    copy->problem = not_comparable +
                    (core_->is_cut() ? "is cut before its first page" : "lacks its first page (bit 4 of coredump_filter)");
    return;
  }
  // A file may be shorter than its page.
  const std::string here = ReadBegin(file, std::min(ran.size(), kPageBytes));
  const auto module = Module::Open(Fd(fcntl(file.get(), F_DUPFD_CLOEXEC, 0)), path);
  const std::string build_id = module ? (*module)->build_id() : "";
  const bool differs = !ran_build_id.empty() && ran_build_id != build_id;
  if (!module || !ran.starts_with(here) || differs) {
    copy->problem = path + " is another build than the one that ran";
    if (differs && !build_id.empty()) {
      copy->problem += ": its build-id is " + HexOfBytes(build_id) + ", that one's " + HexOfBytes(ran_build_id);
    }
    copy->problem += "; " + way_out;
    return;
  }
  if (ran_build_id != build_id) {
    copy->problem = not_comparable + "lacks its build-id";
    return;
  }
  if (build_id.empty() && !HasGoBuildId(here)) {
    notes_.push_back(path + " has no build-id: it is taken for the file that ran, because its first page is the same");
  }
  copy->file = std::move(file);
}

Result<MappedCopies> MappedCopies::Open(const CoreFile& core, const CoreLayout& layout, const std::string& executable) {
  if (!executable.empty() && layout.executable < 0) {
    return Error(Code::kInvalidArgument, "the core does not say where its program was mapped: --exe is of no use");
  }
  MappedCopies copies(core, layout);
  size_t opened = 0;
  for (size_t i = 0; i < layout.files.size(); i++) {
    const CoreLayoutFile& mapped = layout.files[i];
    Copy& copy = copies.copies_[i];
    if (!mapped.has_code) continue;
    if (++opened > kMaxFiles) {
      copy.problem = mapped.path + " is one of more files with code than are opened";
      continue;
    }
    const bool is_executable = static_cast<int32_t>(i) == layout.executable,
               is_given = is_executable && !executable.empty();
    if (is_given) {
      copies.Take(mapped, std::filesystem::absolute(executable), "name the one that ran", &copy);
      if (copy.problem.empty()) continue;
      return copy.is_missing ? Error(Code::kNotFound, "there is no file " + executable)
                             : Error(Code::kInvalidArgument, copy.problem);
    }
    copies.Take(mapped, mapped.path,
                is_executable ? "name a copy of the one that ran with --exe FILE"
                              : "put a copy of the one that ran there, or run stackctl where the core was written",
                &copy);
  }
  return copies;
}

Fd MappedCopies::Duplicate(const std::string& path) const {
  for (size_t i = 0; i < copies_.size(); i++) {
    const bool is_it =
        layout_->files[i].path == path || (path == "/proc/self/exe" && static_cast<int32_t>(i) == layout_->executable);
    if (is_it && copies_[i].file.valid()) return Fd(fcntl(copies_[i].file.get(), F_DUPFD_CLOEXEC, 0));
  }
  return {};
}

}  // namespace stackd
