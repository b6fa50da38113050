#include "daemon/managed/hotspot/process_memory.h"

#include <algorithm>
#include <cstring>

namespace stackd::hotspot {

const ProcessMemory::Page* ProcessMemory::PageAt(uint64_t page_avma) {
  auto found = pages_.find(page_avma);
  if (found == pages_.end()) {
    if (pages_.size() >= kMaxPages) return nullptr;
    auto page = std::make_unique_for_overwrite<Page>();
    if (files_.ReadSome(page_avma, *page) != kPageBytes) page = nullptr;
    found = pages_.emplace(page_avma, std::move(page)).first;
  }
  return found->second.get();
}

bool ProcessMemory::Read(uint64_t avma, std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const uint64_t offset = avma % kPageBytes;
    const Page* page = PageAt(avma - offset);
    if (page == nullptr) return false;
    const size_t part = std::min<size_t>(bytes.size(), kPageBytes - offset);
    memcpy(bytes.data(), page->data() + offset, part);
    bytes = bytes.subspan(part);
    avma += part;
  }
  return true;
}

std::optional<std::string> ProcessMemory::Text(uint64_t avma, size_t max_bytes) {
  std::string text;
  while (text.size() < max_bytes) {
    const uint64_t offset = avma % kPageBytes;
    const Page* page = PageAt(avma - offset);
    if (page == nullptr) return std::nullopt;
    const size_t part = std::min<size_t>(max_bytes - text.size(), kPageBytes - offset);
    const char* begin = reinterpret_cast<const char*>(page->data() + offset);
    const size_t length = strnlen(begin, part);
    text.append(begin, length);
    if (length < part) return text;
    avma += part;
  }
  return std::nullopt;
}

}  // namespace stackd::hotspot
