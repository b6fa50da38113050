// Objects of a CPython 3.8 to 3.14, read out of the memory of a process that runs on. Where their fields lie is published
// by 3.14 itself, and known of the versions before.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "daemon/process/process_files.h"

namespace stackd {

// The process runs on, so an address may lead to something else. A read that fails gives zeros or an empty text.
class CpythonObjects {
 public:
  // PY_VERSION_HEX >> 16.
  static constexpr uint32_t kFirstVersion = 0x308;
  static constexpr uint32_t kPublishesTasks = 0x30e;

  // Words of _Py_DebugOffsets, which _PyRuntime begins with: Include/internal/pycore_debug_offsets.h of 3.14.10.
  enum Word : size_t {
    kCookie = 0,
    kHexVersion = 1,
    kFreeThreaded = 2,
    kInterpreterThreads = 9,
    kThreadNext = 24,
    kThreadNativeId = 28,
    kFrameExecutable = 33,
    kFrameInstruction = 34,
    kFrameStackPointer = 37,
    kCodeFile = 40,
    kCodeName = 42,
    kCodeLines = 43,
    kCodeFirstLine = 44,
    kCodeInstructions = 48,
    kObjectType = 51,
    kTypeName = 53,
    kSetTable = 64,
    kSetMask = 65,
    kLongTag = 72,
    kLongDigits = 73,
    kBytesSize = 75,
    kBytesData = 76,
    kTextState = 78,
    kTextLength = 79,
    kTextAsciiBytes = 80,
    kGeneratorFrame = 85,
    kGeneratorState = 86,
    kWords = 89,
  };

  struct Function {
    uint32_t version;
    std::string name;  // from 3.11 on qualified; never empty
    std::string file;
    std::string lines;
    uint32_t first_line = 0;

    int32_t LineAt(int64_t position) const;
  };

  explicit CpythonObjects(const ProcessFiles& memory) : memory_(memory) {}

  // Reads the table. False if it is not that of a 3.14 with a GIL, or makes no sense.
  bool Open(uint64_t table_avma);
  // Takes the offsets of a version before 3.14. False if they are not known.
  bool OpenVersion(uint32_t version);

  uint32_t version() const { return version_; }
  uint64_t offset(Word word) const { return words_[word]; }
  // Larger values are no offsets.
  static bool IsOffset(uint64_t value) { return value < 4 << 20; }

  bool ReadBytes(uint64_t avma, void* bytes, size_t size_bytes) const;
  template <typename T>
  T Value(uint64_t avma) const {
    T value{};
    return ReadBytes(avma, &value, sizeof(value)) ? value : T{};
  }
  uint64_t Pointer(uint64_t avma) const { return Value<uint64_t>(avma); }

  std::string TypeName(uint64_t object_avma);
  // The name of a type itself.
  std::string NameOfType(uint64_t type_avma);
  std::string Text(uint64_t text_avma) const;
  // Whether it is this text, of ASCII and 63 bytes at most.
  bool IsText(uint64_t text_avma, std::string_view text) const;
  // Value of an `int` that is not negative, modulo 2^60.
  uint64_t Number(uint64_t int_avma) const;
  // nullptr if it is no code object, or there was no room for more of them.
  const Function* FunctionOf(uint64_t code_avma);

  // Memory that the kept functions take.
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  std::string Bytes(uint64_t bytes_avma) const;

  const ProcessFiles& memory_;
  uint32_t version_ = 0;
  std::array<uint64_t, kWords> words_ = {};
  std::unordered_map<uint64_t, std::string> types_;
  std::unordered_map<uint64_t, Function> functions_;
  uint64_t used_bytes_ = 0;
};

}  // namespace stackd
