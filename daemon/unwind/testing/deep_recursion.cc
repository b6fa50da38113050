#include "daemon/unwind/testing/deep_recursion.h"

#include <cstdio>

#define BY_RBP [[gnu::noinline, gnu::optimize("no-omit-frame-pointer")]]
#define BY_RSP [[gnu::noinline, gnu::optimize("omit-frame-pointer")]]

namespace stackd {
namespace {

volatile int sink;

// Its own callees leave return addresses where the next turn has its variables.
[[gnu::noinline]] int LeaveTraces(int value) {
  char text[64];
  return snprintf(text, sizeof(text), "%d %s", value, "and more") + sink;
}

BY_RBP int OddByRbp(int depth, void (*leaf)()) {
  volatile char hole[200];
  hole[0] = static_cast<char>(depth);
  return LeaveTraces(depth) + RecurseByRbp(depth - 1, leaf) + hole[0];
}

BY_RSP int OddByRsp(int depth, void (*leaf)()) {
  volatile char hole[200];
  hole[0] = static_cast<char>(depth);
  return LeaveTraces(depth) + RecurseByRsp(depth - 1, leaf) + hole[0];
}

}  // namespace

BY_RBP int RecurseByRbp(int depth, void (*leaf)()) {
  if (depth > 0) return OddByRbp(depth, leaf) + sink;
  leaf();
  return sink;
}

BY_RSP int RecurseByRsp(int depth, void (*leaf)()) {
  if (depth > 0) return OddByRsp(depth, leaf) + sink;
  leaf();
  return sink;
}

}  // namespace stackd
