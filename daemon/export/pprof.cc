#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "daemon/analyze/names/runtime_frame.h"
#include "daemon/base/clock.h"
#include "daemon/export/export.h"
#include "daemon/export/flat_stack.h"
#include "daemon/export/piecewise.h"
#include "daemon/export/printable.h"
#include "daemon/export/text_summary.h"
#include "daemon/export/wording.h"
#include "pprof/profile.pb.h"

namespace stackd {
namespace {

// What protobuf's streams write goes to a sink.
class SinkStream final : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit SinkStream(const Sink& sink) : sink_(sink) {}
  bool Write(const void* bytes, int size_bytes) override {
    return sink_({static_cast<const char*>(bytes), static_cast<size_t>(size_bytes)});
  }

 private:
  const Sink& sink_;
};

// A profile in gzip, piece by piece: messages of protobuf one behind the other are one message, lists joined.
class ProfileStream {
 public:
  explicit ProfileStream(const Sink& sink) : bytes_(sink), pieces_(&bytes_, Piecewise::kPieceBytes), gzip_(&pieces_) {}

  // False once the sink wants no more.
  bool Write(const pprof::Profile& part) { return part.SerializeToZeroCopyStream(&gzip_); }

 private:
  SinkStream bytes_;
  google::protobuf::io::CopyingOutputStreamAdaptor pieces_;
  google::protobuf::io::GzipOutputStream gzip_;  // ends the file when it goes
};

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

// The language of the program: all others have calls to C in the end.
v1::Language LanguageOf(const v1::Stack& stack) {
  v1::Language language = v1::LANGUAGE_UNSPECIFIED;
  for (const v1::Frame& frame : stack.frames()) {
    if (frame.language() == v1::LANGUAGE_UNSPECIFIED) continue;
    language = frame.language();
    if (language != v1::C_CPP) break;
  }
  return language;
}

std::string_view KindInWords(v1::Task::Kind kind) {
  switch (kind) {
    case v1::Task::GOROUTINE:
      return TaskNoun(v1::GO);
    case v1::Task::VIRTUAL_THREAD:
      return TaskNoun(v1::JAVA);
    case v1::Task::ASYNCIO_TASK:
      return TaskNoun(v1::PYTHON);
    case v1::Task::TOKIO_TASK:
      return TaskNoun(v1::RUST);
    default:
      return TaskNoun(v1::LANGUAGE_UNSPECIFIED);
  }
}

// The base name of a module's file, as frames name it.
std::string NameInFrames(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  if (path.starts_with('/')) path.remove_prefix(path.rfind('/') + 1);
  return std::string(path);
}

class ProfileWriter {
 public:
  ProfileWriter(const v1::Dump& dump, const Sink& sink) : dump_(dump), stream_(sink), stacks_(dump.stacks_size()) {}

  void Run() {
    pending_.add_string_table("");
    pprof::ValueType* type = pending_.add_sample_type();
    type->set_type(String("threads"));
    type->set_unit(String("count"));
    pending_.set_time_nanos(dump_.create_time().seconds() * kNsPerSecond + dump_.create_time().nanos());
    pending_.set_duration_nanos(dump_.capture_duration().seconds() * kNsPerSecond + dump_.capture_duration().nanos());
    AddComments();
    for (const v1::Module& module : dump_.modules()) AddMapping(module);
    for (const v1::Thread& thread : dump_.threads()) {
      if (!wanted_) return;
      if (!thread.is_agent()) AddThread(thread);
    }
    for (const v1::Task& task : dump_.tasks()) {
      if (!wanted_) return;
      AddTask(task);
    }
    Flush();
  }

 private:
  struct StackInProfile {
    std::vector<uint64_t> location_ids;
    std::string language;
  };

  // The index of a text, which is written when it is first met.
  int64_t String(std::string_view text) {
    if (text.empty()) return 0;
    std::string shown = PrintableBeginning(text);
    const auto [entry, is_new] = string_ids_.try_emplace(std::move(shown), string_ids_.size() + 1);
    if (is_new) {
      pending_.add_string_table(entry->first);
      pending_bytes_ += entry->first.size();
    }
    return static_cast<int64_t>(entry->second);
  }

  // What the text formats say around the stacks.
  void AddComments() {
    std::string text;
    const Sink sink = [&](std::string_view piece) {
      text += piece;
      return true;
    };
    {
      Piecewise out(sink);
      WriteHeading(dump_, &out);
      WriteFindings(dump_, &out);
      WriteNotes(dump_, &out);
    }
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      if (end > begin) pending_.add_comment(String(std::string_view(text).substr(begin, end - begin)));
      begin = end + 1;
    }
  }

  void AddMapping(const v1::Module& module) {
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

  // 0: none.
  uint64_t MappingOf(const v1::Frame& frame, uint64_t address) const {
    const auto named = mappings_.find(frame.module());
    if (address == 0 || named == mappings_.end()) return 0;
    const auto behind = named->second.upper_bound(address);
    return behind == named->second.begin() ? 0 : std::prev(behind)->second;
  }

  uint64_t Function(std::string_view name, std::string_view file) {
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

  // `frames`: those at one address, the function itself last.
  uint64_t Location(std::span<const FlatFrame> frames) {
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

  std::vector<uint64_t> Locations(std::span<const FlatFrame> frames) {
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

  // nullptr: there is no such stack.
  const StackInProfile* StackAt(int index) {
    if (index < 0 || index >= dump_.stacks_size()) return nullptr;
    std::optional<StackInProfile>& stack = stacks_[index];
    if (!stack) {
      const v1::Language language = LanguageOf(dump_.stacks(index));
      stack = {Locations(FlatFrames(dump_.stacks(index))),
               language == v1::LANGUAGE_UNSPECIFIED ? "" : LanguageInWords(language)};
    }
    return &*stack;
  }

  void AddLabel(std::string_view key, std::string_view text, pprof::Sample* sample) {
    if (text.empty()) return;
    pprof::Label* label = sample->add_label();
    label->set_key(String(key));
    label->set_str(String(text));
  }

  void AddNumber(std::string_view key, uint64_t number, pprof::Sample* sample) {
    if (number == 0) return;
    pprof::Label* label = sample->add_label();
    label->set_key(String(key));
    label->set_num(static_cast<int64_t>(number));
  }

  // A sample with the frames of `stack`, or with what stands for them.
  pprof::Sample* AddSample(const StackInProfile* stack, std::string_view state) {
    FlushIfLarge();
    pprof::Sample* sample = pending_.add_sample();
    sample->add_value(1);
    if (stack != nullptr && !stack->location_ids.empty()) {
      sample->mutable_location_id()->Add(stack->location_ids.begin(), stack->location_ids.end());
    } else {
      const FlatFrame stand_in{NoStackInWords(state), nullptr};
      sample->add_location_id(Location({&stand_in, 1}));
    }
    AddLabel("process", dump_.process().display_name(), sample);
    AddLabel("state", state, sample);
    if (stack != nullptr) AddLabel("language", stack->language, sample);
    return sample;
  }

  void AddThread(const v1::Thread& thread) {
    pprof::Sample* sample = AddSample(thread.has_stack() ? StackAt(thread.stack()) : nullptr, thread.state());
    AddLabel("thread", thread.name(), sample);
    AddNumber("tid", thread.tid(), sample);
    if (thread.has_wait()) AddLabel("wait", v1::Wait::Kind_Name(thread.wait().kind()), sample);
    pending_bytes_ += sample->ByteSizeLong();
  }

  // A task that waits in several places at once is in each of them, as in the groups of the text.
  void AddTask(const v1::Task& task) {
    std::vector<int> stacks(task.other_stacks().begin(), task.other_stacks().end());
    if (task.has_stack()) stacks.push_back(task.stack());
    std::ranges::sort(stacks);
    const auto [first, last] = std::ranges::unique(stacks);
    stacks.erase(first, last);
    if (stacks.empty()) AddTaskAt(nullptr, task);
    for (int stack : stacks) AddTaskAt(StackAt(stack), task);
  }

  void AddTaskAt(const StackInProfile* stack, const v1::Task& task) {
    pprof::Sample* sample = AddSample(stack, task.state());
    AddLabel("task", KindInWords(task.kind()), sample);
    AddLabel("task_name", task.name(), sample);
    AddNumber("task_id", task.id(), sample);
    AddNumber("tid", task.tid(), sample);
    AddLabel("wait", task.wait_reason(), sample);
    pending_bytes_ += sample->ByteSizeLong();
  }

  void FlushIfLarge() {
    if (pending_bytes_ >= Piecewise::kPieceBytes) Flush();
  }

  void Flush() {
    wanted_ = wanted_ && stream_.Write(pending_);
    pending_.Clear();
    pending_bytes_ = 0;
  }

  const v1::Dump& dump_;
  ProfileStream stream_;
  bool wanted_ = true;
  // What was not yet written, and about how much that is.
  pprof::Profile pending_;
  size_t pending_bytes_ = 0;

  std::unordered_map<std::string, size_t> string_ids_;
  std::map<std::pair<int64_t, int64_t>, uint64_t> function_ids_;  // by name and file
  std::unordered_map<std::string, uint64_t> location_ids_;        // by the message without its id
  std::vector<std::optional<StackInProfile>> stacks_;             // as the dump has them
  uint64_t mapping_count_ = 0;
  std::unordered_map<std::string, std::map<uint64_t, uint64_t>> mappings_;  // ids by the name in frames and the start
};

}  // namespace

void ExportPprof(const v1::Dump& dump, const Sink& sink) { ProfileWriter(dump, sink).Run(); }

}  // namespace stackd
