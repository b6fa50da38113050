#include "daemon/unwind/testing/remote_unwind.h"

#include <cstring>

#include "daemon/capture/native_stack.h"

// Exported by libunwind-x86_64 for users of the remote API, and in no header.
extern "C" int _Ux86_64_dwarf_search_unwind_table(unw_addr_space_t, unw_word_t ip, unw_dyn_info_t*, unw_proc_info_t*,
                                                  int need_unwind_info, void* arg);

namespace stackd {
namespace {

struct Subject {
  const Registers* registers;
  const StackCopy* stack;
  const AddressMap* map;
};

const Subject& SubjectOf(void* arg) { return *static_cast<Subject*>(arg); }

int FindProcInfo(unw_addr_space_t address_space, unw_word_t ip, unw_proc_info_t* info, int need_unwind_info, void* arg) {
  const Mapping* mapping = SubjectOf(arg).map->Find(ip);
  const Section* hdr =
      mapping == nullptr || mapping->module == nullptr ? nullptr : mapping->module->FindSection(".eh_frame_hdr");
  if (hdr == nullptr) return -UNW_ENOINFO;
  uint64_t hdr_avma = hdr->svma + mapping->bias;
  // Version, encodings, then .eh_frame's address and the number of entries of the table behind it.
  constexpr uint64_t kCountOffset = 8, kTableOffset = 12, kEntryBytes = 8;
  uint32_t count;
  memcpy(&count, reinterpret_cast<const void*>(hdr_avma + kCountOffset), sizeof(count));
  unw_dyn_info_t table{};
  table.start_ip = mapping->start_avma;
  table.end_ip = mapping->end_avma;
  table.format = UNW_INFO_FORMAT_REMOTE_TABLE;
  table.u.rti.segbase = hdr_avma;
  table.u.rti.table_data = hdr_avma + kTableOffset;
  table.u.rti.table_len = count * kEntryBytes / sizeof(unw_word_t);
  return _Ux86_64_dwarf_search_unwind_table(address_space, ip, &table, info, need_unwind_info, arg);
}

int AccessMemory(unw_addr_space_t, unw_word_t avma, unw_word_t* word, int write, void* arg) {
  if (write != 0) return -UNW_EINVAL;
  if (std::optional<uint64_t> copied = SubjectOf(arg).stack->Read(avma)) {
    *word = *copied;
    return 0;
  }
  const Mapping* mapping = SubjectOf(arg).map->Find(avma);
  // What is not a module's may have changed since the capture.
  if (mapping == nullptr || mapping->module == nullptr || !mapping->readable) return -UNW_EINVAL;
  if (avma > mapping->end_avma - sizeof(*word)) return -UNW_EINVAL;
  memcpy(word, reinterpret_cast<const void*>(avma), sizeof(*word));
  return 0;
}

int AccessRegister(unw_addr_space_t, unw_regnum_t number, unw_word_t* value, int write, void* arg) {
  // libunwind numbers registers as DWARF does.
  const auto& values = SubjectOf(arg).registers->value;
  if (write != 0 || number < 0 || static_cast<size_t>(number) >= values.size()) return -UNW_EBADREG;
  *value = values[static_cast<size_t>(number)];
  return 0;
}

void PutUnwindInfo(unw_addr_space_t, unw_proc_info_t*, void*) {}
int NoDynamicInfo(unw_addr_space_t, unw_word_t*, void*) { return -UNW_ENOINFO; }
int NoFloatRegister(unw_addr_space_t, unw_regnum_t, unw_fpreg_t*, int, void*) { return -UNW_EBADREG; }
int NoResume(unw_addr_space_t, unw_cursor_t*, void*) { return -UNW_EINVAL; }
int NoName(unw_addr_space_t, unw_word_t, char*, size_t, unw_word_t*, void*) { return -UNW_ENOINFO; }

unw_accessors_t accessors = {
    .find_proc_info = FindProcInfo,
    .put_unwind_info = PutUnwindInfo,
    .get_dyn_info_list_addr = NoDynamicInfo,
    .access_mem = AccessMemory,
    .access_reg = AccessRegister,
    .access_fpreg = NoFloatRegister,
    .resume = NoResume,
    .get_proc_name = NoName,
};

}  // namespace

RemoteUnwinder::RemoteUnwinder(bool caching) : address_space_(unw_create_addr_space(&accessors, 0)) {
  unw_set_caching_policy(address_space_, caching ? UNW_CACHE_GLOBAL : UNW_CACHE_NONE);
}

RemoteUnwinder::~RemoteUnwinder() { unw_destroy_addr_space(address_space_); }

std::vector<uint64_t> RemoteUnwinder::Unwind(const Registers& registers, const StackCopy& stack, const AddressMap& map) {
  Subject subject{&registers, &stack, &map};
  std::vector<uint64_t> pcs;
  unw_cursor_t cursor;
  if (unw_init_remote(&cursor, address_space_, &subject) != 0) return pcs;
  do {
    unw_word_t pc = 0;
    if (unw_get_reg(&cursor, UNW_REG_IP, &pc) != 0 || pc == 0) break;
    pcs.push_back(pc);
  } while (pcs.size() < kMaxFrames && unw_step(&cursor) > 0);
  return pcs;
}

}  // namespace stackd
