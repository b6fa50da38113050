#include "daemon/managed/hotspot/code_cache.h"

#include "daemon/base/text.h"
#include "daemon/managed/hotspot/compressed_ints.h"

namespace stackd::hotspot {
namespace {

constexpr uint32_t kMaxHeaps = 8;  // there are three, or one
constexpr uint64_t kMaxCacheBytes = 4ull << 30;
constexpr size_t kMaxBlobs = 1 << 16;
constexpr size_t kMaxNameBytes = 256;
constexpr uint64_t kMaxBlobBytes = 64 << 20;
constexpr uint64_t kMaxFrameBytes = 1 << 20;
// An entry of the segment map is a number of segments back to where the block begins, or part of the way.
constexpr uint8_t kFreeSegment = 0xff;
constexpr int kMaxSteps = 1 << 16;
// HotSpot inlines nine calls deep, recursion included.
constexpr size_t kMaxScopes = 64;
constexpr uint64_t kPcDescBytes = 16;
constexpr uint32_t kMaxMetadata = 1 << 20;

}  // namespace

std::optional<CodeCache> CodeCache::Open(ProcessMemory* memory, const Layout& layout) {
  CodeCache cache(memory, layout);
  if (layout.code_heaps_avma == kNone) return OpenOnlyHeap(std::move(cache));
  const auto low = memory->Word(layout.code_low_avma), high = memory->Word(layout.code_high_avma);
  const auto list = memory->Word(layout.code_heaps_avma), stub = memory->Word(layout.call_stub_return_avma);
  if (!low || !high || !list || !stub || *low >= *high || *high - *low > kMaxCacheBytes) return std::nullopt;
  cache.low_avma_ = *low;
  cache.high_avma_ = *high;
  cache.call_stub_return_avma_ = *stub;
  const auto count = memory->Value<uint32_t>(*list + layout.list_length);
  const auto data = memory->Word(*list + layout.list_data);
  if (!count || !data) return std::nullopt;
  for (uint32_t i = 0; i < *count && i < kMaxHeaps; ++i) {
    const auto heap = memory->Word(*data + 8ull * i);
    auto read = heap ? cache.ReadHeap(*heap) : std::nullopt;
    if (read) cache.heaps_.push_back(*read);
  }
  return cache.heaps_.empty() ? std::nullopt : std::optional(std::move(cache));
}

std::optional<CodeCache> CodeCache::OpenOnlyHeap(CodeCache cache) {
  const auto heap_avma = cache.memory_->Word(cache.layout_.code_heap_avma);
  const auto stub = cache.memory_->Word(cache.layout_.call_stub_return_avma);
  const auto heap = heap_avma && *heap_avma != 0 ? cache.ReadHeap(*heap_avma) : std::nullopt;
  if (!heap || !stub || heap->high_avma - heap->low_avma > kMaxCacheBytes) return std::nullopt;
  cache.low_avma_ = heap->low_avma;
  cache.high_avma_ = heap->high_avma;
  cache.call_stub_return_avma_ = *stub;
  cache.heaps_.push_back(*heap);
  return cache;
}

std::optional<CodeCache::Heap> CodeCache::ReadHeap(uint64_t heap_avma) {
  const auto low = memory_->Word(heap_avma + layout_.heap_memory + layout_.space_low);
  const auto high = memory_->Word(heap_avma + layout_.heap_memory + layout_.space_high);
  const auto segments = memory_->Word(heap_avma + layout_.heap_segments + layout_.space_low);
  const auto segments_end = memory_->Word(heap_avma + layout_.heap_segments + layout_.space_high);
  const auto log2_size = memory_->Value<int32_t>(heap_avma + layout_.heap_log2_segment_size);
  if (!low || !high || !segments || !segments_end || !log2_size) return std::nullopt;
  if (*low >= *high || *segments >= *segments_end || *log2_size < 4 || *log2_size > 20) return std::nullopt;
  return Heap{*low, *high, *segments, *segments_end - *segments, static_cast<uint64_t>(*log2_size)};
}

std::optional<uint64_t> CodeCache::BlobAt(uint64_t pc_avma) {
  for (const Heap& heap : heaps_) {
    if (pc_avma - heap.low_avma >= heap.high_avma - heap.low_avma) continue;
    uint64_t segment = (pc_avma - heap.low_avma) >> heap.log2_segment_size;
    if (segment >= heap.segment_count) return std::nullopt;
    for (int i = 0; i < kMaxSteps; ++i) {
      const auto back = memory_->Value<uint8_t>(heap.segments_avma + segment);
      if (!back || *back == kFreeSegment || *back > segment) return std::nullopt;
      if (*back == 0) {
        const uint64_t block_avma = heap.low_avma + (segment << heap.log2_segment_size);
        const auto used = memory_->Value<uint8_t>(block_avma + layout_.block_used);
        if (!used || *used == 0) return std::nullopt;
        return block_avma + layout_.block_bytes;
      }
      segment -= *back;
    }
  }
  return std::nullopt;
}

const CodeBlob* CodeCache::Find(uint64_t pc_avma) {
  if (!Holds(pc_avma)) return nullptr;
  const auto blob_avma = BlobAt(pc_avma);
  if (!blob_avma) return nullptr;
  auto found = blobs_.find(*blob_avma);
  if (found == blobs_.end()) {
    if (blobs_.size() >= kMaxBlobs) return nullptr;
    found = blobs_.emplace(*blob_avma, ReadBlob(*blob_avma)).first;
  }
  const auto& blob = found->second;
  return blob && pc_avma >= blob->code_avma && pc_avma < blob->end_avma ? &*blob : nullptr;
}

std::optional<CodeBlob> CodeCache::ReadBlob(uint64_t blob_avma) {
  const auto name_avma = memory_->Word(blob_avma + layout_.blob_name);
  const auto size = memory_->Value<uint32_t>(blob_avma + layout_.blob_size);
  const auto frame_words = memory_->Value<int32_t>(blob_avma + layout_.blob_frame_size);
  if (!name_avma || !size || !frame_words || *size > kMaxBlobBytes) return std::nullopt;
  CodeBlob blob;
  blob.blob_avma = blob_avma;
  blob.name = ToValidUtf8(memory_->Text(*name_avma, kMaxNameBytes).value_or(""));
  blob.end_avma = blob_avma + *size;
  if (layout_.blob_code_begin != kNone) {
    blob.code_avma = memory_->Word(blob_avma + layout_.blob_code_begin).value_or(0);
  } else {
    blob.code_avma = blob_avma + memory_->Value<uint32_t>(blob_avma + layout_.blob_code_offset).value_or(0);
  }
  if (blob.code_avma < blob_avma || blob.code_avma >= blob.end_avma) return std::nullopt;
  if (*frame_words > 1 && static_cast<uint64_t>(*frame_words) * 8 <= kMaxFrameBytes) blob.frame_bytes = *frame_words * 8ull;
  const uint64_t complete_avma = blob_avma + layout_.blob_frame_complete;
  const int64_t complete = layout_.blob_frame_complete_bytes == 2
                               ? int64_t{memory_->Value<int16_t>(complete_avma).value_or(-1)}
                               : int64_t{memory_->Value<int32_t>(complete_avma).value_or(-1)};
  // -1: always.
  blob.frame_complete_avma = blob.code_avma + (complete > 0 ? static_cast<uint64_t>(complete) : 0);
  if (blob.name == "Interpreter") blob.kind = CodeBlob::kInterpreter;
  if (blob.name == "nmethod" || blob.name == "native nmethod") {
    blob.kind = CodeBlob::kMethod;
    blob.method_avma = memory_->Word(blob_avma + layout_.nmethod_method).value_or(0);
  }
  return blob;
}

std::optional<CodeCache::ScopeTables> CodeCache::Tables(const CodeBlob& method) {
  const auto offset = [&](uint64_t field) { return memory_->Value<uint32_t>(method.blob_avma + field); };
  const auto pointer = [&](uint64_t field) { return memory_->Word(method.blob_avma + field); };
  const auto pcs = offset(layout_.nmethod_scopes_pcs_offset);
  if (!pcs) return std::nullopt;
  ScopeTables tables;
  if (layout_.nmethod_scopes_data_begin != kNone) {
    const auto data = pointer(layout_.nmethod_scopes_data_begin);
    const auto pcs_end = offset(layout_.nmethod_dependencies_offset);
    if (!data || !pcs_end) return std::nullopt;
    tables.pcs_avma = method.blob_avma + *pcs;
    tables.pcs_end_avma = method.blob_avma + *pcs_end;
    tables.data_avma = *data;
  } else if (layout_.nmethod_immutable_data == kNone) {
    const auto data = offset(layout_.nmethod_scopes_data_offset);
    const auto pcs_end = offset(layout_.nmethod_dependencies_offset);
    if (!data || !pcs_end) return std::nullopt;
    tables.pcs_avma = method.blob_avma + *pcs;
    tables.pcs_end_avma = method.blob_avma + *pcs_end;
    tables.data_avma = method.blob_avma + *data;
  } else {
    const auto immutable = pointer(layout_.nmethod_immutable_data);
    const auto data = offset(layout_.nmethod_scopes_data_offset);
    if (!immutable || !data) return std::nullopt;
    tables.pcs_avma = *immutable + *pcs;
    tables.pcs_end_avma = *immutable + *data;
    tables.data_avma = *immutable + *data;
  }
  if (layout_.nmethod_metadata_offset != kNone) {
    const auto metadata = offset(layout_.nmethod_metadata_offset);
    if (!metadata) return std::nullopt;
    tables.metadata_avma = method.blob_avma + *metadata;
  } else {
    const auto mutable_data = pointer(layout_.blob_mutable_data);
    const auto relocation_bytes = offset(layout_.blob_relocation_size);
    if (!mutable_data || !relocation_bytes) return std::nullopt;
    tables.metadata_avma = *mutable_data + *relocation_bytes;
  }
  if (tables.pcs_avma > tables.pcs_end_avma || tables.pcs_end_avma - tables.pcs_avma > kMaxBlobBytes) return std::nullopt;
  return tables;
}

// Returns the scope offset of the first PC descriptor at or after `pc_offset`; 0: none.
uint64_t CodeCache::ScopeOffset(const ScopeTables& tables, uint64_t pc_offset) {
  uint64_t low = 0, high = (tables.pcs_end_avma - tables.pcs_avma) / kPcDescBytes;
  const uint64_t count = high;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    const auto at = memory_->Value<int32_t>(tables.pcs_avma + middle * kPcDescBytes);
    if (!at) return 0;
    if (*at < 0 || static_cast<uint64_t>(*at) < pc_offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == count) return 0;
  return memory_->Value<uint32_t>(tables.pcs_avma + low * kPcDescBytes + 4).value_or(0);
}

std::vector<Scope> CodeCache::Scopes(const CodeBlob& method, uint64_t pc_avma) {
  std::vector<Scope> scopes;
  const auto tables = Tables(method);
  uint64_t offset = tables ? ScopeOffset(*tables, pc_avma - method.code_avma) : 0;
  while (offset != 0 && scopes.size() < kMaxScopes) {
    CompressedInts ints(memory_, tables->data_avma + offset, layout_.release);
    const uint32_t sender_offset = ints.Unsigned(), method_index = ints.Unsigned();
    // The first place that it can name is the call of the method, -1.
    const int64_t bytecode_index = int64_t{static_cast<int32_t>(ints.Unsigned())} - 1;
    if (!ints.ok() || method_index == 0 || method_index > kMaxMetadata) break;
    const auto inlined = memory_->Word(tables->metadata_avma + 8ull * (method_index - 1));
    if (!inlined) break;
    scopes.push_back({*inlined, bytecode_index});
    // A sender was described before what it calls.
    if (sender_offset >= offset) break;
    offset = sender_offset;
  }
  // The outermost one is the method: if it is not, what was read is not what it was taken for.
  if (scopes.empty() || scopes.back().method_avma != method.method_avma) return {{method.method_avma, -1}};
  return scopes;
}

std::optional<uint64_t> CodeCache::OriginalPcOffset(const CodeBlob& method, uint64_t pc_avma) {
  uint64_t handler_avma = 0;
  if (layout_.nmethod_deopt_handler_begin != kNone) {
    handler_avma = memory_->Word(method.blob_avma + layout_.nmethod_deopt_handler_begin).value_or(0);
  } else if (layout_.nmethod_deopt_handler_offset != kNone) {
    const auto offset = memory_->Value<int32_t>(method.blob_avma + layout_.nmethod_deopt_handler_offset);
    handler_avma = offset && *offset > 0 ? method.blob_avma + static_cast<uint64_t>(*offset) : 0;
  }
  if (pc_avma != handler_avma) return std::nullopt;
  const auto offset = memory_->Value<int32_t>(method.blob_avma + layout_.nmethod_orig_pc_offset);
  if (!offset || *offset <= 0 || static_cast<uint64_t>(*offset) >= kMaxFrameBytes) return std::nullopt;
  return *offset;
}

}  // namespace stackd::hotspot
