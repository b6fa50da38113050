#include "daemon/unwind/direct_calls.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace stackd {
namespace {

constexpr uint64_t kMaxModuleBytes = 16 << 20;
// All modules of one address map together. Those of programs that put all into libraries have less.
constexpr uint64_t kMaxBytesOfMap = 128 << 20;
constexpr size_t kMaxModules = 8;

template <typename Word>
Word WordAt(std::span<const uint8_t> bytes, size_t at) {
  Word word;
  memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

// Whether the four bytes at `at` may be the offset of a jump or of an address computation, from the address after them.
// Where instructions begin is not known here: rather one place too many.
bool MayBeDistance(std::span<const uint8_t> code, size_t at) {
  if (code[at - 1] == 0xe9) return true;  // jmp
  if (at < 2) return false;
  const uint8_t before = code[at - 2];
  const bool is_branch = before == 0x0f && (code[at - 1] & 0xf0) == 0x80;
  const bool is_lea_of_rip = before == 0x8d && (code[at - 1] & 0xc7) == 0x05;
  const bool is_xbegin = before == 0xc7 && code[at - 1] == 0xf8;
  return is_branch || is_lea_of_rip || is_xbegin;
}

bool IsShortJump(uint8_t opcode) { return opcode == 0xeb || (opcode & 0xf0) == 0x70; }

}  // namespace

// Notes what leads into the code of a module.
class DirectCalls::Search {
 public:
  explicit Search(const Module& module) : module_(module), is_at_fixed_address_(module.lowest_svma() != 0) {}

  // Empty if there is more than `*bytes_left`, from which is taken what there is.
  std::vector<Code> Run(uint64_t* bytes_left) {
    uint64_t bytes = 0;
    for (const Segment& segment : module_.segments()) bytes += std::min(segment.file_bytes, kMaxModuleBytes + 1);
    if (bytes > std::min(kMaxModuleBytes, *bytes_left)) return {};
    *bytes_left -= bytes;
    for (const Segment& segment : module_.segments()) {
      if (segment.executable) found_.push_back({segment.svma, std::vector<bool>(segment.file_bytes)});
    }
    for (const Segment& segment : module_.segments()) {
      if (segment.file_bytes == 0) continue;
      const auto position = module_.SvmaToPosition(segment.svma);
      const auto content = position ? module_.Read(*position, segment.file_bytes) : Result<std::vector<uint8_t>>();
      // What cannot be read may name any function.
      if (!content) return {};
      NotePointers(*content);
      if (segment.executable) NoteJumps(*content, segment.svma);
    }
    return std::move(found_);
  }

 private:
  void Note(uint64_t svma) {
    for (Code& code : found_) {
      if (svma - code.begin_svma < code.is_named.size()) code.is_named[svma - code.begin_svma] = true;
    }
  }

  // In data, in code that takes an address as a number, in relocations and tables of symbols.
  void NotePointers(std::span<const uint8_t> bytes) {
    for (size_t at = 0; at + 4 <= bytes.size(); ++at) {
      if (at + 8 <= bytes.size()) Note(WordAt<uint64_t>(bytes, at));
      if (is_at_fixed_address_) Note(WordAt<uint32_t>(bytes, at));
    }
  }

  void NoteJumps(std::span<const uint8_t> code, uint64_t begin_svma) {
    const auto note_from = [&](size_t end, int64_t distance) { Note(begin_svma + end + static_cast<uint64_t>(distance)); };
    for (size_t at = 1; at < code.size(); ++at) {
      if (IsShortJump(code[at - 1])) note_from(at + 1, static_cast<int8_t>(code[at]));
      if (at + 4 <= code.size() && MayBeDistance(code, at)) note_from(at + 4, WordAt<int32_t>(code, at));
    }
  }

  const Module& module_;
  const bool is_at_fixed_address_;
  std::vector<Code> found_;
};

void DirectCalls::UseMap(uint64_t map_id) {
  if (map_id == map_id_) return;
  map_id_ = map_id;
  bytes_left_ = kMaxBytesOfMap;
}

bool DirectCalls::AreOnlyWayTo(const Module& module, uint64_t svma) {
  for (const Code& code : CodeOf(module)) {
    if (svma - code.begin_svma < code.is_named.size()) return !code.is_named[svma - code.begin_svma];
  }
  return false;
}

const std::vector<DirectCalls::Code>& DirectCalls::CodeOf(const Module& module) {
  const auto known = std::ranges::find(modules_, module.identity(), &ModuleCode::identity);
  if (known != modules_.end()) {
    modules_.splice(modules_.begin(), modules_, known);
  } else {
    modules_.push_front({module.identity(), Search(module).Run(&bytes_left_)});
    if (modules_.size() > kMaxModules) modules_.pop_back();
  }
  return modules_.front().segments;
}

}  // namespace stackd
