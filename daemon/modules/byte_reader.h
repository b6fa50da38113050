// Reads little-endian values out of untrusted bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace stackd {

// A read past the end gives zero and makes ok() false from then on. So a parser may check once, at the end of a record.
class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  bool at_end() const { return remaining() == 0; }

  void Seek(size_t position) {
    if (position > bytes_.size()) return Fail();
    position_ = position;
  }

  // The next `size_bytes`; empty if there are fewer.
  std::span<const uint8_t> Take(uint64_t size_bytes) {
    if (size_bytes > remaining()) {
      Fail();
      return {};
    }
    auto taken = bytes_.subspan(position_, size_bytes);
    position_ += size_bytes;
    return taken;
  }

  template <typename T>
  T Value() {
    T value{};
    auto taken = Take(sizeof(T));
    if (!taken.empty()) memcpy(&value, taken.data(), sizeof(T));
    return value;
  }

  uint8_t U8() { return Value<uint8_t>(); }
  uint16_t U16() { return Value<uint16_t>(); }
  uint32_t U32() { return Value<uint32_t>(); }
  uint64_t U64() { return Value<uint64_t>(); }

  // LEB128; bits beyond the 64th are dropped, as every other reader of DWARF does.
  uint64_t Uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      uint8_t byte = U8();
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }

  int64_t Sleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
      uint8_t byte = U8();
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
      if ((byte & 0x80) != 0) continue;
      if (shift < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << shift;
      return static_cast<int64_t>(value);
    }
  }

  // A NUL-terminated string without its NUL.
  std::span<const uint8_t> String() {
    const void* nul = at_end() ? nullptr : memchr(bytes_.data() + position_, 0, remaining());
    if (nul == nullptr) {
      Fail();
      return {};
    }
    auto string = Take(static_cast<const uint8_t*>(nul) - (bytes_.data() + position_));
    position_ += 1;
    return string;
  }

 private:
  void Fail() {
    ok_ = false;
    position_ = bytes_.size();
  }

  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace stackd
