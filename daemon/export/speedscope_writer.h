// JSON for www.speedscope.app, piece by piece. Source of the format: github.com/jlfwong/speedscope,
// src/lib/file-format-spec.ts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/export/export.h"
#include "daemon/export/flat_stack.h"
#include "daemon/export/piecewise.h"

namespace stackd {

// Threads or tasks with one stack.
struct SpeedscopeSample {
  std::optional<size_t> root;  // the frame that stands for the name of the threads
  size_t stack;
  int64_t weight;
};

struct SpeedscopeProfile {
  std::string name;
  std::string_view unit;  // "none", "nanoseconds"
  std::vector<SpeedscopeSample> samples;
};

// All frames come first: then the profiles.
class SpeedscopeWriter {
 public:
  // `name` is that of the file.
  SpeedscopeWriter(std::string_view name, const Sink& sink);

  // False once the sink wants no more.
  bool wanted() const { return out_.wanted(); }

  // The index of a frame that stands for a name.
  size_t AddRoot(std::string_view name) { return AddFrame(name, "", 0); }
  // The index of a stack.
  size_t AddStack(const std::vector<FlatFrame>& innermost_first);

  // Ends the file.
  void Finish(const std::vector<SpeedscopeProfile>& profiles);

 private:
  // The index of a frame, which is written when it is first met. An empty file, or line 0: not known.
  size_t AddFrame(std::string_view name, std::string_view file, int line);
  void WriteProfile(const SpeedscopeProfile& profile);

  Piecewise out_;
  std::unordered_map<std::string, size_t> index_of_frame_;  // by its JSON
  std::vector<std::vector<size_t>> stacks_;                 // outermost first
};

}  // namespace stackd
