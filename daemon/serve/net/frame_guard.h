// Counts the frames of HTTP/2 that come by one connection, before gRPC reads them.
//
// gRPC 1.51 keeps memory for each call that was begun and reset at once (CVE-2023-44487). So it does for each CONTINUATION
// of a header without end. A client that sends them as fast as it can ends the daemon in a second. No client of stackd
// does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_set>

#include "daemon/base/token_bucket.h"

namespace stackd {

// Numbers of HTTP/2's frames (RFC 9113, section 6).
enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
  kUnknown = 10,
};
inline constexpr size_t kFrameTypes = 11;

// Not thread-safe.
class FrameGuard {
 public:
  // gRPC announces 8 KiB for the list of headers; packed it is smaller.
  static constexpr size_t kMaxHeaderBlockBytes = 16 << 10;
  static constexpr int kMaxContinuations = 4;
  // Calls at a time. gRPC announces 128, and holds a client to them only once it has said that it heard so.
  static constexpr size_t kMaxOpenCalls = 256;

  FrameGuard();

  // Counts what the peer sent. Returns why its connection must end, as a part of a sentence, or nullptr.
  const char* Look(const uint8_t* bytes, size_t count, int64_t now_ns);

  // Takes note of what was sent to the peer: calls end with it.
  void LookAtAnswers(const uint8_t* bytes, size_t count);

  // How many calls Look has seen begin, and be reset, so far.
  int64_t calls() const { return calls_; }
  int64_t resets() const { return resets_; }

 private:
  static constexpr size_t kPrefaceBytes = 24, kFrameHeaderBytes = 9;

  // One direction of the connection, cut into frames.
  class Frames {
   public:
    // Takes some of the bytes, at least one, and returns how many. The head of a frame is whole when IsAtHead says so.
    size_t Take(const uint8_t* bytes, size_t count);
    bool IsAtHead() const { return is_at_head_; }
    FrameType type() const;
    uint8_t flags() const { return head_[4]; }
    uint32_t stream() const;
    size_t payload_bytes() const;

   private:
    std::array<uint8_t, kFrameHeaderBytes> head_{};
    size_t head_bytes_ = 0;
    size_t payload_left_bytes_ = 0;
    bool is_at_head_ = false;
  };

  const char* BeginFrame(int64_t now_ns);
  const char* CountHeaderBlock(FrameType type);
  const char* BeginCall();

  std::array<TokenBucket, kFrameTypes> buckets_;
  Frames from_peer_, to_peer_;
  std::unordered_set<uint32_t> open_calls_;  // their streams
  size_t preface_bytes_ = 0;                 // that have come
  bool is_in_headers_ = false;               // the next frame must be a CONTINUATION
  size_t header_block_bytes_ = 0;
  int continuations_ = 0;
  int64_t calls_ = 0, resets_ = 0;
};

}  // namespace stackd
