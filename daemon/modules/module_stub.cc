#include "daemon/modules/module_stub.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

constexpr size_t kMaxBuildIdBytes = 64;

// The whole file.
struct Image {
  Elf64_Ehdr header;
  Elf64_Phdr code;
  Elf64_Phdr notes;
  Elf64_Nhdr note;
  char owner[4];
  char build_id[kMaxBuildIdBytes];
};

}  // namespace

Result<std::shared_ptr<const Module>> MakeModuleStub(const std::string& path, std::string_view build_id, uint64_t code_svma,
                                                     uint64_t code_bytes) {
  if (build_id.empty() || build_id.size() > kMaxBuildIdBytes) {
    return Error(Code::kInvalidArgument, path + ": its build-id has an impossible size");
  }
  Image image{};
  std::memcpy(image.header.e_ident, ELFMAG, SELFMAG);
  image.header.e_ident[EI_CLASS] = ELFCLASS64;
  image.header.e_ident[EI_DATA] = ELFDATA2LSB;
  image.header.e_ident[EI_VERSION] = EV_CURRENT;
  image.header.e_type = ET_DYN;
  image.header.e_machine = EM_X86_64;
  image.header.e_version = EV_CURRENT;
  image.header.e_phoff = offsetof(Image, code);
  image.header.e_ehsize = sizeof(Elf64_Ehdr);
  image.header.e_phentsize = sizeof(Elf64_Phdr);
  image.header.e_phnum = 2;
  image.code.p_type = PT_LOAD;
  image.code.p_flags = PF_R | PF_X;
  image.code.p_vaddr = code_svma;
  image.code.p_memsz = code_bytes;
  image.notes.p_type = PT_NOTE;
  image.notes.p_flags = PF_R;
  image.notes.p_offset = offsetof(Image, note);
  image.notes.p_filesz = sizeof(Elf64_Nhdr) + sizeof(image.owner) + build_id.size();
  image.notes.p_align = 4;
  image.note.n_namesz = sizeof(image.owner);
  image.note.n_descsz = static_cast<Elf64_Word>(build_id.size());
  image.note.n_type = NT_GNU_BUILD_ID;
  std::memcpy(image.owner, "GNU", sizeof(image.owner));
  std::memcpy(image.build_id, build_id.data(), build_id.size());

  Fd fd(memfd_create("stackd-stub", MFD_CLOEXEC));
  if (!fd.valid() || write(fd.get(), &image, sizeof(image)) != ssize_t{sizeof(image)}) {
    return Error(Code::kResourceExhausted, path + ": no room for what is left of it");
  }
  return Module::Open(std::move(fd), path);
}

}  // namespace stackd
