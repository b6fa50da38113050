// For tests: code whose stacks are hard to unwind, compiled without frame pointers.
#pragma once

namespace stackd {

// Calls back out of many kinds of frames, many times: templates, lambdas, recursion, tail calls, variable and realigned
// frames, callbacks from libc and libstdc++, exceptions. `rounds` says how often; the result is only there to be used.
int RunWorkload(int rounds);

}  // namespace stackd
