// Event loops of one thread that waits inside of a callback, so that no other callback runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/analyze/findings/wait_scene.h"

namespace stackd {

struct LoopCallback {
  std::string_view loop;  // "Node.js"
  std::string place;      // the innermost function that the program brought: "load at shop.js:7"; empty: not known
};

// The callback that the stack is in; nullopt: the stack is in none.
std::optional<LoopCallback> FindLoopCallback(const v1::Stack& stack);

void FindBlockedLoops(WaitScene* scene, std::vector<v1::Finding>* findings);

}  // namespace stackd
