#include "daemon/resource/pod_info.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "daemon/base/fd.h"

namespace stackd {
namespace {

// All annotations of an object have 256 KiB at most; quoted, some more.
constexpr size_t kMaxFileBytes = 1u << 20;
constexpr size_t kMaxUsefulBytes = 1024;

void AppendUtf8(uint32_t code, std::string* text) {
  if (code < 0x80) {
    *text += static_cast<char>(code);
  } else if (code < 0x800) {
    *text += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
  } else if (code < 0x10000) {
    *text += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
              static_cast<char>(0x80 | (code & 0x3f))};
  } else if (code <= 0x10ffff) {
    *text += {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3f)),
              static_cast<char>(0x80 | (code >> 6 & 0x3f)), static_cast<char>(0x80 | (code & 0x3f))};
  }
}

std::optional<uint32_t> Hex(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits) {
    const std::string_view kDigits = "0123456789abcdef";
    const size_t digit = kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return value;
}

// Appends the byte or character of an escape, whose backslash is before `text`. Returns the escape's length; 0: it is none.
size_t Unescape(std::string_view text, std::string* result) {
  constexpr std::string_view kLetters = "abfnrtv\\\"", kMeanings = "\a\b\f\n\r\t\v\\\"";
  if (text.empty()) return 0;
  if (const size_t letter = kLetters.find(text[0]); letter != std::string_view::npos) {
    *result += kMeanings[letter];
    return 1;
  }
  const size_t digits = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
  if (digits == 0 || text.size() <= digits) return 0;
  const auto code = Hex(text.substr(1, digits));
  if (!code) return 0;
  // \x is a byte, the others are characters.
  if (digits == 2) {
    *result += static_cast<char>(*code);
  } else {
    AppendUtf8(*code, result);
  }
  return digits + 1;
}

std::optional<std::string> Unquoted(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const size_t length = Unescape(text.substr(i + 1), &result);
    if (length == 0) return std::nullopt;
    i += length;
  }
  return result;
}

std::string ReadFile(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text;
  char bytes[4096];
  for (ssize_t got; file.valid() && text.size() < kMaxFileBytes && (got = read(file.get(), bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

PodInfo::Map ParseDownwardApi(std::string_view text) {
  PodInfo::Map result;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || line.size() > kMaxUsefulBytes) continue;
    auto value = Unquoted(line.substr(equals + 1));
    if (value) result.insert_or_assign(std::string(line.substr(0, equals)), std::move(*value));
  }
  return result;
}

PodInfo ReadPodInfo(const std::string& dir) {
  return {ParseDownwardApi(ReadFile(dir + "/labels")), ParseDownwardApi(ReadFile(dir + "/annotations"))};
}

}  // namespace stackd
