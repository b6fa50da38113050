#include "daemon/symbolize/worker_protocol.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace stackd {
namespace {

constexpr size_t kMaxTextBytes = 16384;

template <typename T>
void Put(const T& value, std::string* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutText(std::string_view text, std::string* out) {
  text = text.substr(0, kMaxTextBytes);
  Put(static_cast<uint32_t>(text.size()), out);
  out->append(text);
}

template <typename T>
bool Take(std::string_view* in, T* value) {
  if (in->size() < sizeof(T)) return false;
  memcpy(value, in->data(), sizeof(T));
  in->remove_prefix(sizeof(T));
  return true;
}

bool TakeText(std::string_view* in, std::string* text) {
  uint32_t size_bytes;
  if (!Take(in, &size_bytes) || size_bytes > in->size() || size_bytes > kMaxTextBytes) return false;
  text->assign(in->substr(0, size_bytes));
  in->remove_prefix(size_bytes);
  return true;
}

}  // namespace

std::string FileRequest(uint32_t folder, std::string_view relative_path) {
  std::string out;
  const uint32_t body_bytes = static_cast<uint32_t>(sizeof(folder) + relative_path.size());
  Put(AnswerHeader{body_bytes, kFileRequest, SymbolQuality::kNone, 0}, &out);
  Put(folder, &out);
  out.append(relative_path);
  return out;
}

std::optional<uint32_t> TakeFolder(std::string_view* body) {
  uint32_t folder;
  return Take(body, &folder) ? std::optional(folder) : std::nullopt;
}

void AppendAnswer(uint32_t address_index, SymbolQuality quality, const SourceLocation& location, std::string* out) {
  size_t start = out->size();
  AnswerHeader header{.body_bytes = 0, .address_index = address_index, .quality = quality, .frame_count = 0};
  Put(header, out);
  PutText(location.unnamed_reason, out);
  // Outermost first: if something must go, it is the innermost inlined frames.
  for (auto frame = location.frames.rbegin(); frame != location.frames.rend(); ++frame) {
    size_t frame_bytes = frame->function.size() + frame->file.size() + 16;
    if (header.frame_count == kMaxAnswerFrames || out->size() - start + frame_bytes > kMaxAnswerBodyBytes) break;
    PutText(frame->function, out);
    PutText(frame->file, out);
    Put(static_cast<int32_t>(frame->line), out);
    Put(static_cast<uint8_t>(frame->inlined), out);
    Put(static_cast<uint8_t>(frame->language), out);
    header.frame_count++;
  }
  header.body_bytes = out->size() - start - sizeof(header);
  memcpy(out->data() + start, &header, sizeof(header));
}

std::optional<SourceLocation> ParseAnswerBody(uint32_t frame_count, std::string_view body) {
  SourceLocation location;
  if (frame_count > kMaxAnswerFrames || !TakeText(&body, &location.unnamed_reason)) return std::nullopt;
  location.frames.reserve(frame_count);
  for (uint32_t i = 0; i < frame_count; ++i) {
    SourceFrame frame;
    int32_t line;
    uint8_t inlined, language;
    if (!TakeText(&body, &frame.function) || !TakeText(&body, &frame.file) || !Take(&body, &line) ||
        !Take(&body, &inlined) || !Take(&body, &language) || language > static_cast<uint8_t>(Language::kLast)) {
      return std::nullopt;
    }
    frame.line = std::max(line, 0);
    frame.inlined = inlined != 0;
    frame.language = static_cast<Language>(language);
    location.frames.push_back(std::move(frame));
  }
  if (!body.empty()) return std::nullopt;
  std::reverse(location.frames.begin(), location.frames.end());
  return location;
}

}  // namespace stackd
