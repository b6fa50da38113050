#include "daemon/store/compress.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace stackd {
namespace {

// README.md has the figures of its neighbours: -3 makes a raw capture nearly twice as large, 1 takes a third longer.
constexpr int kLevel = -1;
// More cannot come from a dump that was stored: protobuf messages end at 2 GiB.
constexpr uint64_t kMaxBytes = 2ull << 30;
// zstd stores 128 KiB of equal bytes in 4; a damaged header may say anything.
constexpr uint64_t kMaxRatio = 1 << 15;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};
using Context = std::unique_ptr<ZSTD_CCtx, FreeContext>;

// Making one costs more than compressing a small dump. A thread that compresses was mostly made for this one dump.
constexpr size_t kKeptContexts = 2;

class Contexts {
 public:
  Context Take() {
    {
      std::lock_guard lock(mutex_);
      if (!kept_.empty()) {
        Context context = std::move(kept_.back());
        kept_.pop_back();
        return context;
      }
    }
    return Context(ZSTD_createCCtx());
  }

  void GiveBack(Context context) {
    std::lock_guard lock(mutex_);
    if (kept_.size() < kKeptContexts) kept_.push_back(std::move(context));
  }

 private:
  std::mutex mutex_;
  std::vector<Context> kept_;
};

// Never destroyed: a thread may compress until the process is gone.
Contexts& AllContexts() {
  static auto* const contexts = new Contexts;
  return *contexts;
}

}  // namespace

Result<std::string> Compress(std::string_view bytes) {
  Context context = AllContexts().Take();
  if (context == nullptr) return Error(Code::kResourceExhausted, "no memory to compress a dump");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  // Much larger than what will be in it: most of it is never touched.
  const size_t bound_bytes = ZSTD_compressBound(bytes.size());
  const auto frame = std::make_unique_for_overwrite<char[]>(bound_bytes);
  const size_t frame_bytes = ZSTD_compress2(context.get(), frame.get(), bound_bytes, bytes.data(), bytes.size());
  AllContexts().GiveBack(std::move(context));
  if (ZSTD_isError(frame_bytes)) {
    return Error(Code::kInternal, std::string("cannot compress a dump: ") + ZSTD_getErrorName(frame_bytes));
  }
  return std::string(frame.get(), frame_bytes);
}

Result<std::string> Decompress(std::string_view frame) {
  const uint64_t size_bytes = ZSTD_getFrameContentSize(frame.data(), frame.size());
  // The errors of ZSTD_getFrameContentSize are huge numbers.
  if (size_bytes > std::min(kMaxBytes, frame.size() * kMaxRatio)) {
    return Error(Code::kDataLoss, "its compressed form is damaged");
  }
  std::string bytes(size_bytes, '\0');
  const size_t result = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(result) || result != size_bytes) return Error(Code::kDataLoss, "its compressed form is damaged");
  return bytes;
}

}  // namespace stackd
