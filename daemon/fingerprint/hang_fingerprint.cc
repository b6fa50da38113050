#include "daemon/fingerprint/hang_fingerprint.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/fingerprint/fingerprint_walk.h"

namespace stackd {
namespace {

// Raised with any change of what is used or hashed: fingerprints of different rules do not compare.
constexpr std::string_view kRule = "hang-1";

// The threads of the cycle that the thread concerned is in; else that thread alone.
std::set<int32_t> ThreadsOf(const v1::Dump& dump) {
  const int32_t concerned = dump.hang().tid();
  for (const v1::Finding& finding : dump.findings()) {
    if (finding.kind() != v1::Finding::DEADLOCK) continue;
    std::set<int32_t> waiters;
    for (const v1::Finding::Edge& edge : finding.edges()) waiters.insert(edge.waiter_tid());
    if (waiters.contains(concerned)) return waiters;
  }
  return {concerned};
}

}  // namespace

void AddHangFingerprint(const std::string& loop_function, v1::Dump* dump) {
  v1::Hang* hang = dump->mutable_hang();
  FingerprintStart start{.at = FingerprintStart::At::kWait};
  if (!loop_function.empty()) start = {.at = FingerprintStart::At::kLoop, .loop_function = loop_function};
  // By what they are made of: threads come in any order, and a cycle may hold equal ones in any number.
  std::set<std::pair<std::vector<std::string>, int>> stacks;
  const std::set<int32_t> tids = ThreadsOf(*dump);
  std::vector<FingerprintFrames> looked_at;
  for (const v1::Thread& thread : dump->threads()) {
    if (!tids.contains(thread.tid()) || !thread.has_stack()) continue;
    FingerprintFrames frames;
    std::vector<std::string> used = FramesOfFingerprint(dump->stacks(thread.stack()), start, &frames);
    const bool is_known = std::ranges::any_of(stacks, [&](const auto& stack) { return stack.first == used; });
    if (used.empty() || is_known) continue;
    stacks.emplace(std::move(used), static_cast<int>(looked_at.size()));
    looked_at.push_back(std::move(frames));
  }
  std::vector<std::string> texts{v1::Hang::Cause_Name(hang->cause()), hang->heartbeat()};
  for (const auto& [used, index] : stacks) {
    texts.insert(texts.end(), used.begin(), used.end());
    // Where one stack ends and the next begins.
    texts.emplace_back();
    hang->mutable_fingerprint_frames()->MergeFrom(looked_at[static_cast<size_t>(index)]);
  }
  if (stacks.empty()) texts.push_back(dump->process().executable());
  hang->set_fingerprint_rule(std::string(kRule));
  hang->set_fingerprint(FingerprintOfTexts(kRule, texts));
}

}  // namespace stackd
