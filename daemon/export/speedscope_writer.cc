#include "daemon/export/speedscope_writer.h"

#include <ranges>

#include "daemon/config/version.h"
#include "daemon/export/printable.h"

namespace stackd {
namespace {

// A string of JSON. "<" too is escaped, as JSON of the API has it: inside of a page no name begins an element.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char c : PrintableBeginning(text)) {
    if (c == '<') {
      quoted += "\\u003c";
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Members of a list, one after the other.
class List {
 public:
  explicit List(Piecewise* out) : out_(*out) {}
  void Add(std::string_view json) {
    out_ << (first_ ? "" : ",") << json;
    first_ = false;
  }

 private:
  Piecewise& out_;
  bool first_ = true;
};

}  // namespace

SpeedscopeWriter::SpeedscopeWriter(std::string_view name, const Sink& sink) : out_(sink) {
  out_ << R"({"$schema":"https://www.speedscope.app/file-format-schema.json","name":)" << Quoted(name)
       << R"(,"exporter":"stackd )" << kVersion << R"(","shared":{"frames":[)";
}

size_t SpeedscopeWriter::AddFrame(std::string_view name, std::string_view file, int line) {
  std::string json = "{\"name\":" + Quoted(name);
  if (!file.empty()) json += ",\"file\":" + Quoted(file);
  if (line > 0) json += ",\"line\":" + std::to_string(line);
  const auto [entry, is_new] = index_of_frame_.try_emplace(json + "}", index_of_frame_.size());
  if (is_new) out_ << (entry->second == 0 ? "" : ",") << entry->first;
  return entry->second;
}

size_t SpeedscopeWriter::AddStack(const std::vector<FlatFrame>& innermost_first) {
  std::vector<size_t> stack;
  stack.reserve(innermost_first.size());
  for (const FlatFrame& flat : innermost_first | std::views::reverse) {
    // Viewers colour frames by file.
    const bool has_file = flat.frame != nullptr && !flat.frame->file().empty();
    const std::string_view module = flat.frame == nullptr ? std::string_view() : flat.frame->module();
    stack.push_back(has_file ? AddFrame(flat.name, flat.frame->file(), flat.frame->line())
                             : AddFrame(flat.name, module, 0));
  }
  stacks_.push_back(std::move(stack));
  return stacks_.size() - 1;
}

void SpeedscopeWriter::Finish(const std::vector<SpeedscopeProfile>& profiles) {
  out_ << R"(]},"profiles":[)";
  bool is_first = true;
  for (const SpeedscopeProfile& profile : profiles) {
    if (!is_first) out_ << ",";
    WriteProfile(profile);
    is_first = false;
  }
  out_ << "]}";
}

void SpeedscopeWriter::WriteProfile(const SpeedscopeProfile& profile) {
  int64_t total = 0;
  for (const SpeedscopeSample& sample : profile.samples) total += sample.weight;
  out_ << R"({"type":"sampled","name":)" << Quoted(profile.name) << R"(,"unit":")" << profile.unit
       << R"(","startValue":0,"endValue":)" << std::to_string(total) << R"(,"samples":[)";
  List lists(&out_);
  for (const SpeedscopeSample& sample : profile.samples) {
    if (!out_.wanted()) return;
    lists.Add("[");
    List frames(&out_);
    if (sample.root) frames.Add(std::to_string(*sample.root));
    for (size_t frame : stacks_[sample.stack]) frames.Add(std::to_string(frame));
    out_ << "]";
  }
  out_ << R"(],"weights":[)";
  List weights(&out_);
  for (const SpeedscopeSample& sample : profile.samples) weights.Add(std::to_string(sample.weight));
  out_ << "]}";
}

}  // namespace stackd
