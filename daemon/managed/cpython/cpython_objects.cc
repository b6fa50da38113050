#include "daemon/managed/cpython/cpython_objects.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/base/text.h"
#include "daemon/managed/cpython/line_table.h"
#include "daemon/managed/cpython/unicode.h"

namespace stackd {
namespace {

constexpr uint64_t kCookieValue = 0x7970677562656478;  // "xdebugpy"
// Low 16 bits of PY_VERSION_HEX of the first release candidate: earlier builds have other tables.
constexpr uint64_t kFirstCandidate = 0xc1;

// By version from 3.8 on: offsetof() in the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0.
struct OlderLayout {
  uint16_t frame_executable, frame_instruction;
  uint16_t code_file, code_name, code_lines, code_first_line, code_instructions;
  uint16_t text_ascii_bytes;
  uint16_t generator_frame, generator_state;
};
constexpr auto kOlder = std::to_array<OlderLayout>({
    {32, 104, 104, 112, 120, 40, 0, 48, 16, 0},
    {32, 104, 104, 112, 120, 40, 0, 48, 16, 0},
    {32, 96, 104, 112, 120, 40, 0, 48, 16, 0},
    {32, 56, 112, 128, 136, 72, 184, 48, 80, 75},
    {0, 56, 112, 128, 136, 68, 192, 40, 72, 67},
    {0, 56, 112, 128, 136, 68, 200, 40, 72, 67},
});

constexpr size_t kMaxFunctions = 16384;
constexpr size_t kMaxTypes = 256;
constexpr uint64_t kMaxTextBytes = 1024;
constexpr uint64_t kMaxTableBytes = 32 << 10;

}  // namespace

int32_t CpythonObjects::Function::LineAt(int64_t position) const { return LineOf(version, first_line, lines, position); }

bool CpythonObjects::OpenVersion(uint32_t version) {
  if (version < kFirstVersion || version - kFirstVersion >= kOlder.size()) return false;
  const OlderLayout& layout = kOlder[version - kFirstVersion];
  version_ = version;
  words_[kFrameExecutable] = layout.frame_executable;
  words_[kFrameInstruction] = layout.frame_instruction;
  words_[kCodeFile] = layout.code_file;
  words_[kCodeName] = layout.code_name;
  words_[kCodeLines] = layout.code_lines;
  words_[kCodeFirstLine] = layout.code_first_line;
  words_[kCodeInstructions] = layout.code_instructions;
  words_[kTextAsciiBytes] = layout.text_ascii_bytes;
  words_[kGeneratorFrame] = layout.generator_frame;
  words_[kGeneratorState] = layout.generator_state;
  // The same in all of them.
  words_[kObjectType] = 8;
  words_[kTypeName] = 24;
  words_[kSetMask] = 32;
  words_[kSetTable] = 40;
  words_[kLongTag] = 16;
  words_[kLongDigits] = 24;
  words_[kBytesSize] = 16;
  words_[kBytesData] = 32;
  words_[kTextLength] = 16;
  words_[kTextState] = 32;
  return true;
}

bool CpythonObjects::Open(uint64_t table_avma) {
  version_ = kPublishesTasks;
  return ReadBytes(table_avma, words_.data(), sizeof(words_)) && words_[kCookie] == kCookieValue &&
         words_[kHexVersion] >> 16 == kPublishesTasks && (words_[kHexVersion] & 0xffff) >= kFirstCandidate &&
         words_[kFreeThreaded] == 0 && std::all_of(words_.begin() + kFreeThreaded, words_.end(), IsOffset);
}

bool CpythonObjects::ReadBytes(uint64_t avma, void* bytes, size_t size_bytes) const {
  return memory_.ReadSome(avma, {static_cast<uint8_t*>(bytes), size_bytes}) == size_bytes;
}

std::string CpythonObjects::TypeName(uint64_t object_avma) {
  return object_avma == 0 ? std::string() : NameOfType(Pointer(object_avma + offset(kObjectType)));
}

std::string CpythonObjects::NameOfType(uint64_t type_avma) {
  if (type_avma == 0) return {};
  const auto known = types_.find(type_avma);
  if (known != types_.end()) return known->second;
  std::array<char, 64> name = {};
  const uint64_t name_avma = Pointer(type_avma + offset(kTypeName));
  // As much as is there: it may end where its page does.
  memory_.ReadSome(name_avma, {reinterpret_cast<uint8_t*>(name.data()), name.size() - 1});
  if (types_.size() < kMaxTypes) types_.emplace(type_avma, name.data());
  return name.data();
}

std::string CpythonObjects::Text(uint64_t text_avma) const {
  const auto length = Value<uint64_t>(text_avma + offset(kTextLength));
  const auto state = Value<uint32_t>(text_avma + offset(kTextState));
  const uint32_t kind = state >> 2 & 7;
  const bool is_compact = (state >> 5 & 1) != 0, is_ascii = (state >> 6 & 1) != 0;
  if (!is_compact || (kind != 1 && kind != 2 && kind != 4)) return {};
  std::string characters(std::min(length, kMaxTextBytes / kind) * kind, '\0');
  // PyCompactUnicodeObject adds the length and the address of a copy in UTF-8, and up to 3.11 the length of another.
  const uint64_t added_bytes = version_ < 0x30c ? 24 : 16;
  const uint64_t data_avma = text_avma + offset(kTextAsciiBytes) + (is_ascii ? 0 : added_bytes);
  if (!ReadBytes(data_avma, characters.data(), characters.size())) return {};
  return ToValidUtf8(DecodeUnicode(characters, is_ascii ? 0 : kind));
}

bool CpythonObjects::IsText(uint64_t text_avma, std::string_view text) const {
  std::array<char, 128> head = {};
  const size_t characters_at = offset(kTextAsciiBytes);
  // One read for both: a module has hundreds of names.
  memory_.ReadSome(text_avma, {reinterpret_cast<uint8_t*>(head.data()), characters_at + text.size()});
  uint64_t length;
  memcpy(&length, head.data() + offset(kTextLength), sizeof(length));
  return length == text.size() && std::string_view(head.data() + characters_at, text.size()) == text;
}

uint64_t CpythonObjects::Number(uint64_t int_avma) const {
  constexpr int kDigitBits = 30;
  const uint64_t digits = Pointer(int_avma + offset(kLongTag)) >> 3;
  const uint64_t low = Value<uint32_t>(int_avma + offset(kLongDigits));
  if (digits < 2) return low;
  return low | uint64_t{Value<uint32_t>(int_avma + offset(kLongDigits) + sizeof(uint32_t))} << kDigitBits;
}

std::string CpythonObjects::Bytes(uint64_t bytes_avma) const {
  std::string bytes(std::min(Pointer(bytes_avma + offset(kBytesSize)), kMaxTableBytes), '\0');
  return ReadBytes(bytes_avma + offset(kBytesData), bytes.data(), bytes.size()) ? bytes : std::string();
}

const CpythonObjects::Function* CpythonObjects::FunctionOf(uint64_t code_avma) {
  const auto known = functions_.find(code_avma);
  if (known != functions_.end()) return &known->second;
  if (functions_.size() >= kMaxFunctions || TypeName(code_avma) != "code") return nullptr;
  Function function{.version = version_};
  function.name = Text(Pointer(code_avma + offset(kCodeName)));
  function.file = Text(Pointer(code_avma + offset(kCodeFile)));
  function.lines = Bytes(Pointer(code_avma + offset(kCodeLines)));
  function.first_line = Value<uint32_t>(code_avma + offset(kCodeFirstLine));
  if (function.name.empty()) return nullptr;
  used_bytes_ += sizeof(function) + function.name.size() + function.file.size() + function.lines.size();
  return &functions_.emplace(code_avma, std::move(function)).first->second;
}

}  // namespace stackd
