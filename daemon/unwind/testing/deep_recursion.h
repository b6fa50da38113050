// For tests: recursion whose stack is deep, in functions that leave much behind in it.
#pragma once

namespace stackd {

// Two functions call each other, `depth` times in all, and other functions in between; then `leaf` is called.
int RecurseByRbp(int depth, void (*leaf)());  // in functions that keep a frame pointer
int RecurseByRsp(int depth, void (*leaf)());  // and in functions that do not

}  // namespace stackd
