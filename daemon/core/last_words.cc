#include "daemon/core/last_words.h"

#include <string.h>

#include <array>
#include <span>
#include <string_view>

#include "daemon/base/text.h"
#include "stackd/ring_abi.h"

extern "C" {
#include "agent/maps/loaded_object.h"
}

namespace stackd {
namespace {

constexpr size_t kMaxObjects = 1024;

class Reader {
 public:
  explicit Reader(const ProcessFiles& files) : files_(files) {}

  // 0 where it cannot be read.
  uint64_t Word(uint64_t avma) const {
    uint64_t word = 0;
    return avma != 0 && Read(avma, std::span(&word, 1)) ? word : 0;
  }

  template <typename T, size_t N>
  bool Read(uint64_t avma, std::span<T, N> to) const {
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(to.data()), to.size_bytes());
    return files_.ReadSome(avma, bytes) == bytes.size();
  }

  std::string Text(uint64_t avma) const {
    char text[STACKD_CRASH_TEXT_BYTES] = "";
    files_.ReadSome(avma, {reinterpret_cast<uint8_t*>(text), sizeof(text) - 1});
    return FieldText(text);
  }

 private:
  const ProcessFiles& files_;
};

// struct abort_msg_s { unsigned int size; char msg[]; } *__abort_msg.
std::string AbortMessage(const Reader& reader, uint64_t variable_avma) {
  const uint64_t message_avma = reader.Word(variable_avma);
  return message_avma == 0 ? "" : reader.Text(message_avma + sizeof(uint32_t));
}

// The thread's block of thread-local variables of an object, as glibc's __tls_get_addr finds it. The thread descriptor has
// at 8 the address of a table with 16 bytes for each object.
uint64_t ThreadLocalBlock(const Reader& reader, uint64_t thread_self_avma, uint64_t module) {
  constexpr uint64_t kTableOffset = 8, kEntryBytes = 16, kMaxModule = 1u << 20, kNotAllocated = ~uint64_t{0};
  if (module == 0 || module > kMaxModule) return 0;
  const uint64_t table_avma = reader.Word(thread_self_avma + kTableOffset);
  const uint64_t block_avma = table_avma == 0 ? 0 : reader.Word(table_avma + kEntryBytes * module);
  return block_avma == kNotAllocated ? 0 : block_avma;
}

// The address of the thread's variable that __cxa_get_globals() gives, by what its code does. It asks __tls_get_addr for
// {module, offset}, and adds a constant if the offset is that of the block. 0: it does something else.
uint64_t ExceptionGlobals(const Reader& reader, uint64_t function_avma, uint64_t thread_self_avma) {
  std::array<uint8_t, 48> code;
  if (!reader.Read(function_avma, std::span(code))) return 0;
  const std::string_view text(reinterpret_cast<const char*>(code.data()), code.size());
  constexpr std::string_view kLoadIndex("\x48\x8d\x3d", 3), kAdd("\x48\x05", 2);  // lea D(%rip), %rdi; add $N, %rax
  const auto number_at = [&](size_t at) {
    int32_t number;
    memcpy(&number, code.data() + at, sizeof(number));
    return static_cast<uint64_t>(int64_t{number});
  };
  const size_t load = text.find(kLoadIndex);
  constexpr size_t kLoadBytes = 7;
  if (load == std::string_view::npos || load + kLoadBytes > text.size()) return 0;
  const uint64_t index_avma = function_avma + load + kLoadBytes + number_at(load + kLoadIndex.size());
  const size_t add = text.find(kAdd, load + kLoadBytes);
  const bool adds = add != std::string_view::npos && add + kAdd.size() + sizeof(int32_t) <= text.size();
  const uint64_t block_avma = ThreadLocalBlock(reader, thread_self_avma, reader.Word(index_avma));
  if (block_avma == 0) return 0;
  return block_avma + reader.Word(index_avma + sizeof(uint64_t)) + (adds ? number_at(add + kAdd.size()) : 0);
}

// Itanium C++ ABI 2.2: __cxa_eh_globals begins with the exceptions that are caught, as the one that ends the process is. An
// exception begins with its std::type_info*, whose second word is the name. "*" before it: it is compared by address.
std::string ExceptionType(const Reader& reader, uint64_t globals_avma) {
  const uint64_t exception_avma = reader.Word(globals_avma);
  const uint64_t type_avma = exception_avma == 0 ? 0 : reader.Word(exception_avma);
  const uint64_t name_avma = type_avma == 0 ? 0 : reader.Word(type_avma + 8);
  const std::string name = name_avma == 0 ? "" : reader.Text(name_avma);
  return name.starts_with('*') ? name.substr(1) : name;
}

}  // namespace

LastWords ReadLastWords(const AddressMap& map, uint64_t thread_self_avma, const ProcessFiles& files) {
  const Reader reader(files);
  LastWords words;
  size_t objects = 0;
  for (const Mapping& mapping : map.mappings()) {
    stackd_loaded_object object;
    if (mapping.file_offset != 0 || mapping.inode == 0 || !stackd_loaded_object_at(mapping.start_avma, &object)) continue;
    if (++objects > kMaxObjects) break;
    const auto symbol = [&](const char* name) { return stackd_loaded_symbol(&object, name).address; };
    if (words.abort_message.empty()) {
      if (const uint64_t avma = symbol("__abort_msg")) words.abort_message = AbortMessage(reader, avma);
    }
    const uint64_t function_avma = words.exception_type.empty() ? symbol("__cxa_get_globals") : 0;
    if (function_avma == 0) continue;
    words.exception_type = ExceptionType(reader, ExceptionGlobals(reader, function_avma, thread_self_avma));
  }
  return words;
}

}  // namespace stackd
