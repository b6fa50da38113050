#include "daemon/unwind/x86_64/code_step.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "daemon/unwind/x86_64/call_instruction.h"
#include "daemon/unwind/x86_64/instruction.h"

namespace stackd {
namespace {

// Libraries without unwind tables are small; of larger code it would take long to find where functions begin.
constexpr uint64_t kMaxCodeBytes = 8 << 20;
constexpr size_t kMaxModules = 8;
constexpr size_t kMaxFunctionsOfModule = 1 << 18;
constexpr size_t kMaxFoundOfModule = 1 << 12;
constexpr int kMaxInstructions = 4000;
constexpr uint64_t kMaxFunctionBytes = 64 << 10;
constexpr int32_t kMaxFrameBytes = 1 << 20;
constexpr int kRbpNumber = 5;  // in machine code; not DWARF's

const Segment* CodeSegment(const Module& module, uint64_t svma) {
  for (const Segment& segment : module.segments()) {
    if (segment.executable && svma >= segment.svma && svma - segment.svma < segment.file_bytes) return &segment;
  }
  return nullptr;
}

// Empty where it cannot be read.
std::vector<uint8_t> ReadSegment(const Module& module, uint64_t svma, uint64_t size_bytes) {
  const auto position = module.SvmaToPosition(svma);
  if (!position) return {};
  auto bytes = module.Read(*position, size_bytes);
  return bytes ? *std::move(bytes) : std::vector<uint8_t>();
}

// Whether the last bytes before `at` are those of "lea …(%rip),%REG": of functions that are called by pointer.
bool IsLeaOfRip(std::span<const uint8_t> code, size_t at) {
  return at >= 3 && code[at - 2] == 0x8d && (code[at - 1] & 0xc7) == 0x05 && (code[at - 3] & 0xfb) == 0x48;
}

// What calls and address computations lead to: where functions begin. Bytes that are none of these have such a target once
// in 2^32 / size of the code.
std::vector<uint64_t> FunctionsNamedIn(std::span<const uint8_t> code, uint64_t svma) {
  std::vector<uint64_t> functions;
  for (size_t at = 1; at + 4 <= code.size(); ++at) {
    if (code[at - 1] != kDirectCall && !IsLeaOfRip(code, at)) continue;
    int32_t distance;
    memcpy(&distance, code.data() + at, sizeof(distance));
    const uint64_t target = at + 4 + static_cast<uint64_t>(int64_t{distance});
    if (target < code.size()) functions.push_back(svma + target);
  }
  std::ranges::sort(functions);
  functions.erase(std::ranges::unique(functions).begin(), functions.end());
  functions.shrink_to_fit();
  return functions;
}

// Where rsp is, from where it was at the first instruction.
struct Depth {
  int32_t bytes = 0;
  // It may be lower by up to so much, in steps of a word: the stack was aligned.
  int32_t slack_bytes = 0;
  bool operator==(const Depth&) const = default;
};

// The ways through a function, from one instruction on.
class Paths {
 public:
  // `is_function` of an address: whether what jumps there leaves the function.
  Paths(const Module& module, const Segment& segment, std::function<bool(uint64_t svma)> is_function,
        int* instructions_left)
      : module_(module), segment_(segment), is_function_(std::move(is_function)), instructions_left_(instructions_left) {}

  // To the returns, and to jumps into other functions, which return for this one.
  // `was_called`: svma follows a call.
  std::optional<CodeStep> ToReturn(uint64_t svma, bool was_called) {
    const auto at_end = [](const State& state) {
      CodeStep step{.cfa_offset = state.depth->bytes + 8};
      // Below: it is saved on the way as well, and is the caller's here.
      if (state.saved_rbp && *state.saved_rbp >= 0) step.rbp_offset = state.saved_rbp;
      return step;
    };
    return Follow({svma, Depth{}, std::nullopt, was_called}, std::nullopt, at_end);
  }

  // From the begin of the function to `svma`.
  std::optional<CodeStep> FromBegin(uint64_t begin_svma, uint64_t svma) {
    const auto at_end = [begin_svma](const State& state) {
      CodeStep step{
          .cfa_offset = 8 - state.depth->bytes, .slack_bytes = state.depth->slack_bytes, .begin_svma = begin_svma};
      if (state.saved_rbp) step.rbp_offset = *state.saved_rbp - state.depth->bytes;
      return step;
    };
    return Follow({begin_svma, Depth{}, std::nullopt, false}, svma, at_end);
  }

  // From rsp to the canonical frame address at `svma`, of a function that is known to begin at `begin_svma`.
  std::optional<CodeSteps::CfaOffsets> FindCfaOffsets(uint64_t begin_svma, uint64_t svma,
                                                      const CodeSteps::OffsetByTable& by_table) {
    const auto step = FromBegin(begin_svma, svma);
    const auto contradicts = [&](const auto& seen) {
      const auto offset = by_table(seen.first);
      return offset && seen.second && Depth{8 - *offset} != *seen.second;
    };
    if (disagree_ || std::ranges::any_of(depth_at_, contradicts)) return std::nullopt;
    // Behind a call that does not return follows code that is reached by a table of jumps alone, at another depth.
    if (has_indirect_jump_ && body_depths_differ_) return std::nullopt;
    if (step) return CodeSteps::CfaOffsets{step->cfa_offset, step->cfa_offset + step->slack_bytes};
    const auto depth = body_depth_ ? DepthInBody(begin_svma, svma) : std::nullopt;
    if (!depth) return std::nullopt;
    return CodeSteps::CfaOffsets{8 - depth->bytes, 8 - depth->bytes + depth->slack_bytes};
  }

 private:
  struct State {
    uint64_t svma;
    std::optional<Depth> depth;  // nullopt: it depends on data
    // Where rbp is popped from, likewise; from the begin of the function: where it was pushed, while it is there.
    std::optional<int32_t> saved_rbp;
    bool is_behind_call;
  };

  std::span<const uint8_t> CodeAt(uint64_t svma) {
    constexpr uint64_t kWindowBytes = 4096;
    if (svma < segment_.svma || svma - segment_.svma >= segment_.file_bytes) return {};
    const uint64_t left = segment_.file_bytes - (svma - segment_.svma);
    if (svma < window_svma_ || svma - window_svma_ + std::min<uint64_t>(left, kMaxInstructionBytes) > window_.size()) {
      window_ = ReadSegment(module_, svma, std::min(left, kWindowBytes));
      window_svma_ = svma;
    }
    return std::span(window_).subspan(std::min<size_t>(svma - window_svma_, window_.size()));
  }

  template <typename AtEnd>
  std::optional<CodeStep> Follow(State first, std::optional<uint64_t> goal_svma, AtEnd at_end) {
    depth_at_.clear();
    body_depth_.reset();
    body_depths_differ_ = false;
    has_indirect_jump_ = false;
    disagree_ = false;
    std::vector<State> open{first};
    std::optional<CodeStep> result;
    const auto reach_end = [&](const State& state) {
      disagree_ = disagree_ || !state.depth;
      if (disagree_) return;
      const CodeStep step = at_end(state);
      disagree_ = result && *result != step;
      result = step;
    };
    int instructions = 0;
    while (!open.empty() && !disagree_) {
      State state = open.back();
      open.pop_back();
      while (true) {
        if (goal_svma && state.svma == *goal_svma) {
          reach_end(state);
          break;
        }
        const auto [seen, is_new] = depth_at_.emplace(state.svma, state.depth);
        if (!is_new) {
          disagree_ = disagree_ || seen->second != state.depth;
          break;
        }
        if (++instructions > kMaxInstructions || --*instructions_left_ < 0) return std::nullopt;
        const auto instruction = DecodeInstruction(CodeAt(state.svma));
        // A call that does not return is the last of its function, and the next one begins at a round address.
        if (state.is_behind_call && instruction && instruction->kind == Instruction::Kind::kNothing) break;
        if (instruction) NoteBodyDepth(*instruction, state.depth);
        if (!instruction || !Apply(*instruction, goal_svma.has_value(), &state)) break;
        const uint64_t next_svma = state.svma + instruction->size_bytes;
        const uint64_t target_svma = next_svma + static_cast<uint64_t>(int64_t{instruction->value});
        if (instruction->kind == Instruction::Kind::kReturn) {
          if (!goal_svma) reach_end(state);
          break;
        }
        const bool jumps = instruction->kind == Instruction::Kind::kJump;
        if (jumps || instruction->kind == Instruction::Kind::kBranch) {
          if (!is_function_(target_svma)) {
            open.push_back({target_svma, state.depth, state.saved_rbp, false});
          } else if (!goal_svma && jumps) {
            reach_end(state);
          }
          if (jumps) break;
        }
        state.svma = next_svma;
        state.is_behind_call = instruction->kind == Instruction::Kind::kCall;
        if (is_function_(next_svma) && next_svma != goal_svma) break;
      }
    }
    return disagree_ ? std::nullopt : result;
  }

  void NoteBodyDepth(const Instruction& instruction, const std::optional<Depth>& depth) {
    const bool is_indirect_jump = instruction.kind == Instruction::Kind::kIndirectJump;
    if (instruction.kind != Instruction::Kind::kCall && !is_indirect_jump) return;
    // From where it has nothing on the stack, a function jumps to another one.
    if (is_indirect_jump && depth == Depth{}) return;
    has_indirect_jump_ = has_indirect_jump_ || is_indirect_jump;
    body_depths_differ_ = body_depths_differ_ || !depth || (body_depth_ && body_depth_ != depth);
    body_depth_ = body_depths_differ_ ? std::nullopt : depth;
  }

  // Depth at an instruction that no way from the begin reaches: it follows a jump by a table, or catches an exception. The
  // depth there is that of all calls and such jumps.
  std::optional<Depth> DepthInBody(uint64_t begin_svma, uint64_t goal_svma) {
    State state{begin_svma, Depth{}, std::nullopt, false};
    while (state.svma < goal_svma) {
      if (const auto seen = depth_at_.find(state.svma); seen != depth_at_.end()) state.depth = seen->second;
      const auto instruction = DecodeInstruction(CodeAt(state.svma));
      if (!instruction || --*instructions_left_ < 0) return std::nullopt;
      const bool leads_on = instruction->kind != Instruction::Kind::kReturn &&
                            instruction->kind != Instruction::Kind::kJump && Apply(*instruction, true, &state);
      if (!leads_on) state.depth = body_depth_;
      state.svma += instruction->size_bytes;
    }
    return state.svma == goal_svma ? state.depth : std::nullopt;
  }

  // False if the way does not go on after the instruction, or is of no use from there on.
  static bool Apply(const Instruction& instruction, bool from_begin, State* state) {
    const bool is_rbp = instruction.value == kRbpNumber;
    // From the begin, it still tells that the depth at the goal depends on data.
    if (!state->depth)
      return instruction.kind != Instruction::Kind::kIndirectJump && instruction.kind != Instruction::Kind::kEnd;
    int32_t& depth = state->depth->bytes;
    switch (instruction.kind) {
      case Instruction::Kind::kPush:
        depth -= 8;
        if (is_rbp && from_begin) state->saved_rbp = depth;
        break;
      case Instruction::Kind::kPop:
        if (is_rbp) state->saved_rbp = from_begin ? std::nullopt : std::optional(depth);
        depth += 8;
        break;
      case Instruction::Kind::kMoveStack:
        if (instruction.value > kMaxFrameBytes || instruction.value < -kMaxFrameBytes) return false;
        depth += instruction.value;
        break;
      case Instruction::Kind::kAlignStack:
        if (from_begin && state->depth->slack_bytes == 0) {
          state->depth->slack_bytes = instruction.value - 8;
          break;
        }
        [[fallthrough]];
      case Instruction::Kind::kLosesStack:
        state->depth.reset();
        return from_begin;
      case Instruction::Kind::kIndirectJump:
      case Instruction::Kind::kEnd:
        return false;
      default:
        break;
    }
    return depth <= kMaxFrameBytes && depth >= -kMaxFrameBytes;
  }

  const Module& module_;
  const Segment& segment_;
  const std::function<bool(uint64_t svma)> is_function_;
  int* const instructions_left_;
  // What the last Follow() has found.
  std::unordered_map<uint64_t, std::optional<Depth>> depth_at_;
  std::optional<Depth> body_depth_;
  bool body_depths_differ_ = false;
  bool has_indirect_jump_ = false;
  bool disagree_ = false;
  std::vector<uint8_t> window_;
  uint64_t window_svma_ = 0;
};

}  // namespace

CodeSteps::ModuleCode& CodeSteps::CodeOf(const Module& module) {
  const auto known = std::ranges::find(modules_, module.identity(), &ModuleCode::identity);
  if (known != modules_.end()) {
    modules_.splice(modules_.begin(), modules_, known);
    return modules_.front();
  }
  modules_.push_front({module.identity(), {}, {}});
  if (modules_.size() > kMaxModules) modules_.pop_back();
  ModuleCode& code = modules_.front();
  uint64_t bytes_left = kMaxCodeBytes;
  for (const Segment& segment : module.segments()) {
    if (!segment.executable || segment.file_bytes > bytes_left) continue;
    bytes_left -= segment.file_bytes;
    const std::vector<uint8_t> bytes = ReadSegment(module, segment.svma, segment.file_bytes);
    std::ranges::copy(FunctionsNamedIn(bytes, segment.svma), std::back_inserter(code.function_svmas));
  }
  // No real program has so many: the module is made to fill the daemon's memory.
  if (code.function_svmas.size() > kMaxFunctionsOfModule) code.function_svmas.resize(kMaxFunctionsOfModule);
  code.function_svmas.shrink_to_fit();
  std::ranges::sort(code.function_svmas);
  return code;
}

std::optional<CodeStep> CodeSteps::Find(const Module& module, uint64_t svma, uint64_t lookup_svma) {
  const Segment* segment = CodeSegment(module, lookup_svma);
  if (instructions_left_ <= 0 || segment == nullptr || segment->file_bytes > kMaxCodeBytes) return std::nullopt;
  ModuleCode& code = CodeOf(module);
  const auto known = code.found.find(svma);
  if (known != code.found.end()) return known->second;
  const auto& functions = code.function_svmas;
  const auto is_function = [&functions](uint64_t target_svma) {
    return std::ranges::binary_search(functions, target_svma);
  };
  Paths paths(module, *segment, is_function, &instructions_left_);
  std::optional<CodeStep> step;
  const bool is_behind_end = svma != lookup_svma && std::ranges::binary_search(functions, svma);
  if (!is_behind_end) step = paths.ToReturn(svma, svma != lookup_svma);
  const auto after = std::ranges::upper_bound(functions, lookup_svma);
  if (!step && after != functions.begin() && lookup_svma - *std::prev(after) <= kMaxFunctionBytes) {
    step = paths.FromBegin(*std::prev(after), svma);
    if (step && step->slack_bytes != 0) step.reset();
  }
  // What one stack had no time for, the next one may have.
  if (!step && instructions_left_ < 0) return step;
  if (code.found.size() >= kMaxFoundOfModule) code.found.clear();
  code.found.emplace(svma, step);
  return step;
}

std::optional<CodeSteps::CfaOffsets> CodeSteps::FindCfaOffsets(const Module& module, uint64_t begin_svma, uint64_t end_svma,
                                                               uint64_t svma, const OffsetByTable& by_table) {
  const Segment* segment = CodeSegment(module, begin_svma);
  if (instructions_left_ <= 0 || segment == nullptr || end_svma - begin_svma > kMaxFunctionBytes) return std::nullopt;
  const auto is_outside = [&](uint64_t target_svma) { return target_svma < begin_svma || target_svma >= end_svma; };
  return Paths(module, *segment, is_outside, &instructions_left_).FindCfaOffsets(begin_svma, svma, by_table);
}

}  // namespace stackd
