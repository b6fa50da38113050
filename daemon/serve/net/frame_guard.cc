#include "daemon/serve/net/frame_guard.h"

#include <algorithm>
#include <cstring>

namespace stackd {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kEndStream = 0x1, kEndHeaders = 0x4;

struct FrameLimit {
  double per_second;
  double burst;
  const char* sentence;
};

// By FrameType. A caller has 200 calls a second, and 128 at a time. It may cancel all of those at once, and be told of more
// that it calls too often. Go's client sends a PING with each answer that it reads, and all send a WINDOW_UPDATE now and
// then while they read a large one.
constexpr FrameLimit kLimits[kFrameTypes] = {
    {4'000, 8'000, "it sends too many frames of data"},
    {3'000, 3'000, "it begins too many calls"},
    {100, 200, "it sends too many frames of priority"},
    {50, 256, "it resets too many calls"},
    {10, 50, "it changes its settings too often"},
    {1, 1, "it pushes"},
    {1'000, 2'000, "it sends too many pings"},
    {1, 10, "it says too often that it goes"},
    {20'000, 20'000, "it sends too many updates of windows"},
    {1'000, 2'000, "it sends too many pieces of headers"},
    {10, 50, "it sends too many frames that nobody knows"},
};

template <size_t... kIndex>
std::array<TokenBucket, kFrameTypes> MakeBuckets(std::index_sequence<kIndex...>) {
  return {TokenBucket(kLimits[kIndex].per_second, kLimits[kIndex].burst)...};
}

}  // namespace

FrameGuard::FrameGuard() : buckets_(MakeBuckets(std::make_index_sequence<kFrameTypes>())) {}

size_t FrameGuard::Frames::Take(const uint8_t* bytes, size_t count) {
  is_at_head_ = false;
  if (payload_left_bytes_ > 0) {
    const size_t taken = std::min(count, payload_left_bytes_);
    payload_left_bytes_ -= taken;
    return taken;
  }
  const size_t taken = std::min(count, head_.size() - head_bytes_);
  memcpy(head_.data() + head_bytes_, bytes, taken);
  head_bytes_ += taken;
  if (head_bytes_ == head_.size()) {
    head_bytes_ = 0;
    is_at_head_ = true;
    payload_left_bytes_ = payload_bytes();
  }
  return taken;
}

FrameType FrameGuard::Frames::type() const {
  return static_cast<FrameType>(std::min<uint8_t>(head_[3], static_cast<uint8_t>(FrameType::kUnknown)));
}

uint32_t FrameGuard::Frames::stream() const {
  const uint32_t word = uint32_t{head_[5]} << 24 | uint32_t{head_[6]} << 16 | uint32_t{head_[7]} << 8 | head_[8];
  return word & 0x7fffffff;
}

size_t FrameGuard::Frames::payload_bytes() const { return size_t{head_[0]} << 16 | size_t{head_[1]} << 8 | head_[2]; }

const char* FrameGuard::Look(const uint8_t* bytes, size_t count, int64_t now_ns) {
  while (count > 0) {
    size_t taken = 0;
    if (preface_bytes_ < kPrefaceBytes) {
      taken = std::min(count, kPrefaceBytes - preface_bytes_);
      if (memcmp(bytes, kPreface + preface_bytes_, taken) != 0) return "it does not speak HTTP/2";
      preface_bytes_ += taken;
    } else {
      taken = from_peer_.Take(bytes, count);
      const char* why = from_peer_.IsAtHead() ? BeginFrame(now_ns) : nullptr;
      if (why != nullptr) return why;
    }
    bytes += taken;
    count -= taken;
  }
  return nullptr;
}

void FrameGuard::LookAtAnswers(const uint8_t* bytes, size_t count) {
  while (count > 0) {
    const size_t taken = to_peer_.Take(bytes, count);
    bytes += taken;
    count -= taken;
    if (!to_peer_.IsAtHead()) continue;
    const FrameType type = to_peer_.type();
    const bool is_last = (type == FrameType::kData || type == FrameType::kHeaders) && (to_peer_.flags() & kEndStream) != 0;
    if (is_last || type == FrameType::kRstStream) open_calls_.erase(to_peer_.stream());
  }
}

const char* FrameGuard::BeginFrame(int64_t now_ns) {
  const FrameType type = from_peer_.type();
  const auto index = static_cast<size_t>(type);
  if (buckets_[index].TakeOrWaitNs(now_ns) != 0) return kLimits[index].sentence;
  if (type == FrameType::kRstStream) {
    ++resets_;
    open_calls_.erase(from_peer_.stream());
  }
  return CountHeaderBlock(type);
}

const char* FrameGuard::CountHeaderBlock(FrameType type) {
  if (is_in_headers_ != (type == FrameType::kContinuation)) return "its frames are in no order";
  if (type == FrameType::kHeaders) {
    if (const char* why = BeginCall(); why != nullptr) return why;
    header_block_bytes_ = 0;
    continuations_ = 0;
  } else if (type == FrameType::kContinuation) {
    if (++continuations_ > kMaxContinuations) return "it sends headers in too many pieces";
  } else {
    return nullptr;
  }
  header_block_bytes_ += from_peer_.payload_bytes();
  if (header_block_bytes_ > kMaxHeaderBlockBytes) return "it sends headers that are too long";
  is_in_headers_ = (from_peer_.flags() & kEndHeaders) == 0;
  return nullptr;
}

const char* FrameGuard::BeginCall() {
  ++calls_;
  open_calls_.insert(from_peer_.stream());
  return open_calls_.size() > kMaxOpenCalls ? "it has too many calls at a time" : nullptr;
}

}  // namespace stackd
