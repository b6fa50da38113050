#include "daemon/symbolize/demangle.h"

#include <setjmp.h>
#include <string.h>

// Else libiberty declares basename in conflict with <string.h>.
#define HAVE_DECL_BASENAME 1
#include <libiberty/demangle.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace stackd {
namespace {

// Filled by a C callback that leaves the demangler by longjmp when it is full, so it must have nothing to destroy. That is
// sound: with a callback the demangler keeps all its state on the stack.
struct BoundedText {
  jmp_buf full;
  size_t size_bytes = 0;
  char text[kMaxNameBytes];
};

void Append(const char* piece, size_t piece_bytes, void* opaque) {
  auto* out = static_cast<BoundedText*>(opaque);
  size_t taken_bytes = std::min(piece_bytes, kMaxNameBytes - out->size_bytes);
  memcpy(out->text + out->size_bytes, piece, taken_bytes);
  out->size_bytes += taken_bytes;
  if (taken_bytes < piece_bytes) longjmp(out->full, 1);
}

using Demangler = int (*)(const char*, int, demangle_callbackref, void*);

bool Run(Demangler demangler, const char* mangled, int options, BoundedText* out) {
  out->size_bytes = 0;
  if (setjmp(out->full) != 0) return true;  // cut
  return demangler(mangled, options, Append, out) != 0;
}

void AppendUtf8(uint32_t character, std::string& text) {
  const auto byte = [&](uint32_t value) { text += static_cast<char>(value); };
  const auto continuation = [&](int shift) { byte(0x80 | (character >> shift & 0x3f)); };
  if (character < 0x80) return byte(character);
  if (character < 0x800) {
    byte(0xc0 | character >> 6);
  } else if (character < 0x10000) {
    byte(0xe0 | character >> 12);
    continuation(6);
  } else {
    byte(0xf0 | character >> 18);
    continuation(12);
    continuation(6);
  }
  continuation(0);
}

// The character of an escape "$u…$" that `text` begins with, and its bytes; 0: there is none that makes sense.
std::pair<uint32_t, size_t> RustEscape(std::string_view text) {
  size_t end = text.find('$', 1);
  if (!text.starts_with("$u") || end == std::string_view::npos || end > 8) return {};
  uint32_t character = 0;
  auto [stop, error] = std::from_chars(text.data() + 2, text.data() + end, character, 16);
  bool is_scalar = character <= 0x10ffff && (character < 0xd800 || character > 0xdfff);
  if (error != std::errc() || stop != text.data() + end || !is_scalar || character < 0xa0) return {};
  return {character, end + 1};
}

// Replaces escapes of Rust's older mangling that the demangler leaves: characters that are not ASCII.
std::string WithoutRustEscapes(std::string_view name) {
  std::string plain;
  while (!name.empty()) {
    auto [character, bytes] = RustEscape(name);
    if (character == 0) {
      plain += name.front();
      name.remove_prefix(1);
    } else {
      AppendUtf8(character, plain);
      name.remove_prefix(bytes);
    }
  }
  return plain;
}

}  // namespace

Language LanguageOfName(std::string_view mangled) {
  if (mangled.starts_with("_R")) return Language::kRust;
  if (!mangled.starts_with("_Z")) return Language::kUnknown;
  // Rust's older names end with a hash: "17h", 16 hex digits, "E", and perhaps what the linker appended.
  constexpr size_t kHashDigits = 16;
  constexpr std::string_view kHash = "17h";
  for (size_t at = mangled.find(kHash); at != mangled.npos; at = mangled.find(kHash, at + 1)) {
    const std::string_view rest = mangled.substr(at + kHash.size());
    const size_t digits = std::min(rest.find_first_not_of("0123456789abcdef"), rest.size());
    const bool ends = digits == kHashDigits && rest.size() > digits && rest[digits] == 'E' &&
                      (rest.size() == digits + 1 || rest[digits + 1] == '.');
    if (ends) return Language::kRust;
  }
  return Language::kCpp;
}

std::string Demangle(std::string_view mangled, ReturnType return_type) {
  std::string name(mangled.substr(0, kMaxNameBytes));
  if (mangled.size() > kMaxMangledBytes || !(mangled.starts_with("_Z") || mangled.starts_with("_R"))) return name;
  auto out = std::make_unique_for_overwrite<BoundedText>();
  int options = DMGL_PARAMS | DMGL_ANSI | (return_type == ReturnType::kDrop ? DMGL_RET_DROP : 0);
  // Rust first: its older names are valid C++ names too, with escapes and a hash that only the Rust demangler takes away.
  // Verbose C++ is gdb's: std::basic_string<char, …>, where the mangled name has an abbreviation for std::string. Verbose
  // Rust would keep the hash.
  if (Run(rust_demangle_callback, name.c_str(), options, out.get())) {
    return WithoutRustEscapes(std::string_view(out->text, out->size_bytes));
  }
  if (Run(cplus_demangle_v3_callback, name.c_str(), options | DMGL_VERBOSE, out.get())) {
    return std::string(out->text, out->size_bytes);
  }
  return name;
}

}  // namespace stackd
