#include "daemon/export/minidump.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/text.h"
#include "daemon/export/minidump_format.h"
#include "daemon/export/minidump_modules.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/wording.h"
#include "daemon/modules/address_map.h"
#include "stackd/ring_abi.h"

namespace stackd {
namespace {

// The file is header, threads, tables, directory. Registers and stacks are large: they are laid out first and written last,
// straight from the capture. The tables that point to them are small and made in memory in between. An RVA has 32 bits, and
// the last GiB of what it reaches is for the tables.
constexpr uint64_t kThreadsEndRva = 3ull << 30;

constexpr char kFiltered[] =
    "Exported by stackd. Of stacks and registers only what points into code or into the stack was copied; "
    "the rest reads as zero.";

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// A part of a stack; without words there is none.
struct PlacedPart {
  uint64_t base_avma = 0;
  uint32_t word_count = 0;
  uint32_t rva = 0;

  minidump::MemoryDescriptor Descriptor() const { return {base_avma, {word_count * 8, rva}}; }
};

struct PlacedThread {
  const ThreadCapture* capture;
  uint32_t context_rva;
  // What the stack pointer is in, and the outer part of StackCopy.
  PlacedPart stack, outer;
};

struct PlacedThreads {
  std::vector<PlacedThread> threads;
  uint64_t end_rva = sizeof(minidump::Header);
  int64_t not_captured = 0;
  int64_t without_room = 0;
};

bool Place(uint64_t base_avma, uint32_t word_count, uint64_t* end_rva, PlacedPart* part) {
  const uint64_t size_bytes = 8ull * word_count;
  if (size_bytes > kThreadsEndRva - *end_rva) return false;
  *part = {base_avma, word_count, static_cast<uint32_t>(*end_rva)};
  *end_rva += size_bytes;
  return true;
}

PlacedThreads PlaceThreads(const Capture& capture) {
  PlacedThreads placed;
  std::vector<const ThreadCapture*> captured;
  for (const ThreadCapture& thread : capture.threads) {
    if (thread.has_stack) captured.push_back(&thread);
  }
  placed.not_captured = static_cast<int64_t>(capture.threads.size() - captured.size());
  // The thread that crashed must have room.
  std::ranges::stable_partition(
      captured, [&](const ThreadCapture* thread) { return capture.crash && thread->tid == capture.crash->tid; });
  for (const ThreadCapture* thread : captured) {
    if (sizeof(minidump::Context) > kThreadsEndRva - placed.end_rva) {
      ++placed.without_room;
      continue;
    }
    PlacedThread& place = placed.threads.emplace_back(PlacedThread{thread, static_cast<uint32_t>(placed.end_rva), {}, {}});
    placed.end_rva += sizeof(minidump::Context);
    const StackCopy& stack = thread->stack;
    const bool fits = Place(stack.base_avma(), stack.word_count(), &placed.end_rva, &place.stack) &&
                      Place(stack.outer_base_avma(), stack.outer_word_count(), &placed.end_rva, &place.outer);
    if (!fits) ++placed.without_room;
  }
  return placed;
}

// The streams and what they point to, in the order in which they are added.
class Tables {
 public:
  explicit Tables(uint64_t rva) : start_rva_(rva) {}

  uint32_t rva() const { return static_cast<uint32_t>(start_rva_ + bytes_.size()); }
  const std::string& bytes() const { return bytes_; }
  const std::vector<minidump::DirectoryEntry>& directory() const { return directory_; }

  minidump::Location Add(std::string_view bytes) {
    const minidump::Location location{static_cast<uint32_t>(bytes.size()), rva()};
    bytes_ += bytes;
    bytes_.append((4 - bytes_.size() % 4) % 4, '\0');
    return location;
  }

  void AddStream(minidump::StreamType type, std::string_view bytes) { directory_.push_back({type, Add(bytes)}); }

  template <typename T>
  void AddListStream(minidump::StreamType type, const std::vector<T>& elements) {
    const minidump::ListHead head{static_cast<uint32_t>(elements.size())};
    std::string bytes(BytesOf(head));
    bytes.append(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T));
    AddStream(type, bytes);
  }

  // Returns its RVA.
  uint32_t AddString(std::string_view text) {
    const std::u16string units = Utf16(ToValidUtf8(text));
    const minidump::StringHead head{static_cast<uint32_t>(units.size() * sizeof(char16_t))};
    std::string bytes(BytesOf(head));
    bytes.append(reinterpret_cast<const char*>(units.c_str()), (units.size() + 1) * sizeof(char16_t));
    return Add(bytes).rva;
  }

 private:
  static std::u16string Utf16(std::string_view utf8);

  const uint64_t start_rva_;
  std::string bytes_;
  std::vector<minidump::DirectoryEntry> directory_;
};

std::u16string Tables::Utf16(std::string_view utf8) {
  std::u16string units;
  while (!utf8.empty()) {
    const auto first = static_cast<uint8_t>(utf8[0]);
    const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t point = length == 1 ? first : first & (0x7f >> length);
    for (size_t i = 1; i < length; ++i) point = point << 6 | (static_cast<uint8_t>(utf8[i]) & 0x3f);
    if (point < 0x10000) {
      units += static_cast<char16_t>(point);
    } else {
      units += static_cast<char16_t>(0xd7c0 + (point >> 10));
      units += static_cast<char16_t>(0xdc00 + (point & 0x3ff));
    }
    utf8.remove_prefix(length);
  }
  return units;
}

void AddSystemInfo(Tables* tables) {
  minidump::SystemInfo info{};
  info.architecture = minidump::kArchitectureAmd64;
  info.platform = minidump::kPlatformLinux;
  info.os_text_rva = tables->AddString("");
  tables->AddStream(minidump::StreamType::kSystemInfo, BytesOf(info));
}

void AddMiscInfo(const ProcessDescription& process, Tables* tables) {
  minidump::MiscInfo info{};
  info.size_bytes = sizeof(info);
  info.flags = minidump::kMiscInfoHasPid;
  info.pid = static_cast<uint32_t>(process.pid);
  tables->AddStream(minidump::StreamType::kMiscInfo, BytesOf(info));
}

void AddException(const CrashCapture& crash, const std::vector<PlacedThread>& threads, Tables* tables) {
  minidump::ExceptionStream exception{};
  exception.tid = static_cast<uint32_t>(crash.tid);
  exception.code = static_cast<uint32_t>(crash.signal_number);
  exception.flags = static_cast<uint32_t>(crash.signal_code);
  if ((crash.flags & STACKD_CRASH_SENT) == 0) exception.address = crash.fault_address_avma;
  const bool has_context = !threads.empty() && threads[0].capture->tid == crash.tid;
  if (has_context) exception.context = {sizeof(minidump::Context), threads[0].context_rva};
  tables->AddStream(minidump::StreamType::kException, BytesOf(exception));
}

void AddThreads(const std::vector<PlacedThread>& placed, Tables* tables) {
  std::vector<minidump::Thread> threads;
  std::vector<minidump::ThreadName> names;
  std::vector<minidump::MemoryDescriptor> memory;
  for (const PlacedThread& place : placed) {
    minidump::Thread& thread = threads.emplace_back();
    thread.tid = static_cast<uint32_t>(place.capture->tid);
    thread.stack = place.stack.Descriptor();
    thread.context = {sizeof(minidump::Context), place.context_rva};
    names.push_back({thread.tid, tables->AddString(place.capture->name)});
    for (const PlacedPart& part : {place.stack, place.outer}) {
      if (part.word_count > 0) memory.push_back(part.Descriptor());
    }
  }
  tables->AddListStream(minidump::StreamType::kThreadList, threads);
  tables->AddListStream(minidump::StreamType::kThreadNames, names);
  tables->AddListStream(minidump::StreamType::kMemoryList, memory);
}

void AddModules(const RawCapture& raw, Tables* tables) {
  std::vector<minidump::Module> modules;
  for (const LoadedModule& loaded : LoadedModules(raw)) {
    minidump::Module& module = modules.emplace_back();
    module.base_avma = loaded.base_avma;
    module.size_bytes = static_cast<uint32_t>(std::min<uint64_t>(loaded.size_bytes, std::numeric_limits<uint32_t>::max()));
    module.name_rva = tables->AddString(loaded.name);
    if (loaded.build_id.empty()) continue;
    module.codeview = tables->Add(std::string(BytesOf(minidump::kCodeViewElf)) + loaded.build_id);
  }
  tables->AddListStream(minidump::StreamType::kModuleList, modules);
}

void AddMaps(const std::vector<Mapping>& mappings, Tables* tables) {
  std::string text;
  for (const Mapping& mapping : mappings) {
    char line[160];
    // Whether it is shared is not known.
    snprintf(line, sizeof(line), "%08" PRIx64 "-%08" PRIx64 " %c%c%cp %08" PRIx64 " %02x:%02x %" PRIu64 " ",
             mapping.start_avma, mapping.end_avma, mapping.readable ? 'r' : '-', mapping.writable ? 'w' : '-',
             mapping.executable ? 'x' : '-', mapping.file_offset, major(mapping.device), minor(mapping.device),
             mapping.inode);
    text += line + mapping.path + "\n";
  }
  tables->AddStream(minidump::StreamType::kLinuxMaps, text);
}

void AddComment(const Capture& capture, const PlacedThreads& placed, Tables* tables) {
  std::string text = kFiltered;
  if (placed.not_captured > 0) text += "\nNot captured: " + Count(placed.not_captured, "thread") + ".";
  if (placed.without_room > 0) {
    text += "\nNo room in the file for the stacks of " + Count(placed.without_room, "thread") + ".";
  }
  for (const std::string& note : capture.notes) text += "\n" + note;
  if (capture.crash && !capture.crash->abort_message.empty()) text += "\n" + capture.crash->abort_message;
  tables->AddStream(minidump::StreamType::kComment, std::string_view(text.c_str(), text.size() + 1));
}

Tables MakeTables(const RawCapture& raw, const PlacedThreads& placed) {
  Tables tables(placed.end_rva);
  AddSystemInfo(&tables);
  AddMiscInfo(raw.capture.process, &tables);
  if (raw.capture.crash) AddException(*raw.capture.crash, placed.threads, &tables);
  AddThreads(placed.threads, &tables);
  AddModules(raw, &tables);
  AddMaps(raw.capture.map->mappings(), &tables);
  AddComment(raw.capture, placed, &tables);
  return tables;
}

minidump::Context ContextOf(const Registers& registers) {
  const auto& value = registers.value;
  minidump::Context context{};
  context.flags = minidump::kContextControlAndInteger;
  // The segments of every 64-bit program.
  context.cs = 0x33;
  context.ss = 0x2b;
  context.rax = value[0];
  context.rdx = value[1];
  context.rcx = value[2];
  context.rbx = value[3];
  context.rsi = value[4];
  context.rdi = value[5];
  context.rbp = value[Registers::kRbp];
  context.rsp = value[Registers::kRsp];
  for (int i = 0; i < 8; ++i) context.r8_to_r15[i] = value[8 + i];
  context.rip = value[Registers::kRip];
  return context;
}

void WritePart(const StackCopy& stack, const PlacedPart& part, Piecewise* out) {
  std::array<uint64_t, 512> words;
  for (uint32_t done = 0; done < part.word_count && out->wanted();) {
    const uint32_t count = std::min<uint32_t>(words.size(), part.word_count - done);
    for (uint32_t i = 0; i < count; ++i) words[i] = stack.Read(part.base_avma + 8ull * (done + i)).value_or(0);
    *out << std::string_view(reinterpret_cast<const char*>(words.data()), 8ull * count);
    done += count;
  }
}

}  // namespace

void ExportMinidump(const RawCapture& raw, const Sink& sink) {
  const PlacedThreads placed = PlaceThreads(raw.capture);
  const Tables tables = MakeTables(raw, placed);
  minidump::Header header{};
  header.signature = minidump::kSignature;
  header.version = minidump::kVersion;
  header.stream_count = static_cast<uint32_t>(tables.directory().size());
  header.directory_rva = tables.rva();
  header.time_s = static_cast<uint32_t>(raw.capture.begin_wall_ns / kNsPerSecond);

  Piecewise out(sink);
  out << BytesOf(header);
  for (const PlacedThread& place : placed.threads) {
    if (!out.wanted()) return;
    out << BytesOf(ContextOf(place.capture->registers));
    WritePart(place.capture->stack, place.stack, &out);
    WritePart(place.capture->stack, place.outer, &out);
  }
  out << tables.bytes();
  for (const minidump::DirectoryEntry& entry : tables.directory()) out << BytesOf(entry);
}

}  // namespace stackd
