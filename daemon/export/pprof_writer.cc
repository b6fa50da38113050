#include "daemon/export/pprof_writer.h"

#include <algorithm>
#include <charconv>

#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

// About what the labels of a sample take.
constexpr size_t kLabelBytes = 64;

uint64_t FromHex(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// Where a frame's code is, as pprof counts: in the call, not where it returns to. 0: a runtime's frame has none.
uint64_t AddressOf(const v1::Frame& frame) {
  if (IsOfRuntime(frame)) return 0;
  const uint64_t address = FromHex(frame.address());
  const bool is_exact = frame.origin() == v1::Frame::REGISTERS || frame.origin() == v1::Frame::SIGNAL_FRAME;
  return is_exact || address == 0 ? address : address - 1;
}

// The base name of a module's file, as frames name it.
std::string NameInFrames(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  if (path.starts_with('/')) path.remove_prefix(path.rfind('/') + 1);
  return std::string(path);
}

}  // namespace

PprofWriter::PprofWriter(std::span<const PprofValueType> value_types, const Sink& sink)
    : bytes_(sink), pieces_(&bytes_, Piecewise::kPieceBytes), gzip_(&pieces_) {
  pending_.add_string_table("");
  for (const PprofValueType& value : value_types) {
    pprof::ValueType* type = pending_.add_sample_type();
    type->set_type(String(value.type));
    type->set_unit(String(value.unit));
  }
}

void PprofWriter::AddComments(std::string_view text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) pending_.add_comment(String(text.substr(begin, end - begin)));
    begin = end + 1;
  }
}

void PprofWriter::SetTime(int64_t begin_wall_ns, int64_t duration_ns) {
  pending_.set_time_nanos(begin_wall_ns);
  pending_.set_duration_nanos(duration_ns);
}

void PprofWriter::SetPeriod(int64_t period_ns) {
  pending_.mutable_period_type()->set_type(String("time"));
  pending_.mutable_period_type()->set_unit(String("nanoseconds"));
  pending_.set_period(period_ns);
}

void PprofWriter::AddMapping(const v1::Module& module) {
  const uint64_t start = FromHex(module.address());
  const bool has_lines = module.symbols() == "DWARF";
  pprof::Mapping* mapping = pending_.add_mapping();
  mapping->set_id(++mapping_count_);
  mapping->set_memory_start(start);
  mapping->set_filename(String(module.path()));
  mapping->set_build_id(String(module.build_id()));
  mapping->set_has_functions(module.symbols() != "NONE");
  mapping->set_has_filenames(has_lines);
  mapping->set_has_line_numbers(has_lines);
  mapping->set_has_inline_frames(has_lines);
  mappings_[NameInFrames(module.path())][start] = mapping->id();
}

std::vector<uint64_t> PprofWriter::Locations(std::span<const FlatFrame> frames) {
  std::vector<uint64_t> ids;
  while (!frames.empty()) {
    const auto is_itself = [](const FlatFrame& flat) {
      return flat.frame == nullptr || flat.frame->origin() != v1::Frame::INLINED;
    };
    const auto itself = std::ranges::find_if(frames, is_itself);
    const size_t count = std::min<size_t>(itself - frames.begin() + 1, frames.size());
    ids.push_back(Location(frames.first(count)));
    frames = frames.subspan(count);
  }
  return ids;
}

pprof::Sample* PprofWriter::AddSample(std::span<const uint64_t> location_ids, std::span<const int64_t> values) {
  if (pending_bytes_ >= Piecewise::kPieceBytes) Flush();
  pprof::Sample* sample = pending_.add_sample();
  sample->mutable_location_id()->Add(location_ids.begin(), location_ids.end());
  sample->mutable_value()->Add(values.begin(), values.end());
  // Numbers of a few bytes each; the texts of labels count when they are new.
  pending_bytes_ += 4 * (location_ids.size() + values.size()) + kLabelBytes;
  return sample;
}

void PprofWriter::AddLabel(std::string_view key, std::string_view text, pprof::Sample* sample) {
  if (text.empty()) return;
  pprof::Label* label = sample->add_label();
  label->set_key(String(key));
  label->set_str(String(text));
}

void PprofWriter::AddNumber(std::string_view key, uint64_t number, pprof::Sample* sample) {
  if (number == 0) return;
  pprof::Label* label = sample->add_label();
  label->set_key(String(key));
  label->set_num(static_cast<int64_t>(number));
}

int64_t PprofWriter::String(std::string_view text) {
  if (text.empty()) return 0;
  std::string shown = PrintableBeginning(text);
  const auto [entry, is_new] = string_ids_.try_emplace(std::move(shown), string_ids_.size() + 1);
  if (is_new) {
    pending_.add_string_table(entry->first);
    pending_bytes_ += entry->first.size();
  }
  return static_cast<int64_t>(entry->second);
}

uint64_t PprofWriter::Function(std::string_view name, std::string_view file) {
  const std::pair key(String(name), String(file));
  const auto [entry, is_new] = function_ids_.try_emplace(key, function_ids_.size() + 1);
  if (is_new) {
    pprof::Function* function = pending_.add_function();
    function->set_id(entry->second);
    function->set_name(key.first);
    function->set_filename(key.second);
  }
  return entry->second;
}

uint64_t PprofWriter::Location(std::span<const FlatFrame> frames) {
  pprof::Location location;
  for (const FlatFrame& flat : frames) {
    pprof::Line* line = location.add_line();
    line->set_function_id(Function(flat.name, flat.frame == nullptr ? "" : flat.frame->file()));
    if (flat.frame != nullptr) line->set_line(flat.frame->line());
  }
  if (const v1::Frame* frame = frames.back().frame; frame != nullptr) {
    location.set_address(AddressOf(*frame));
    location.set_mapping_id(MappingOf(*frame, location.address()));
  }
  const auto [entry, is_new] = location_ids_.try_emplace(location.SerializeAsString(), location_ids_.size() + 1);
  if (is_new) {
    location.set_id(entry->second);
    pending_bytes_ += location.ByteSizeLong();
    *pending_.add_location() = std::move(location);
  }
  return entry->second;
}

uint64_t PprofWriter::MappingOf(const v1::Frame& frame, uint64_t address) const {
  const auto named = mappings_.find(frame.module());
  if (address == 0 || named == mappings_.end()) return 0;
  const auto behind = named->second.upper_bound(address);
  return behind == named->second.begin() ? 0 : std::prev(behind)->second;
}

void PprofWriter::Flush() {
  wanted_ = wanted_ && pending_.SerializeToZeroCopyStream(&gzip_);
  pending_.Clear();
  pending_bytes_ = 0;
}

}  // namespace stackd
