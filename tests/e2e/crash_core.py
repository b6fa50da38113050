"""What gdb says of a core file, and how that compares with the crash that stackd took of the same death."""

import collections
import dataclasses
import os
import subprocess

import oracle
import symbol_aliases

# A deep recursion has more frames than a person reads, gdb too.
MOST_FRAMES = 400


def frames_of_core(program, core, tid):
    """[oracle.Frame] of thread `tid`, innermost first, at most MOST_FRAMES."""
    return oracle.of_gdb_core(program, core, MOST_FRAMES)[tid]


def unfolded(dump, tid):
    """The frames of a stack as proto3 JSON, innermost first, each as often as it occurred. They go up to MOST_FRAMES or to where
    the middle was left out. The line of a folded frame is that of its innermost occurrence: the others get none."""
    frames = dump.frames(tid)
    stack = dump.stack(tid) or {}
    end = stack.get("omittedBefore", len(frames)) if int(stack.get("omittedBytes", 0)) else len(frames)
    result = []
    at = 0
    while at < end and len(result) < MOST_FRAMES:
        count = int(frames[at].get("repeatCount", 0))
        length = frames[at].get("repeatLength", 0)
        if count:
            again = [dict(frame, file="", line=0) for frame in frames[at:at + length]]
            result += frames[at:at + length] + again * min(count - 1, MOST_FRAMES // length + 1)
            at += length
        else:
            result.append(frames[at])
            at += 1
    return result[:MOST_FRAMES]


def folds(dump, tid):
    """[(functions of the recursion, how often)]"""
    frames = dump.frames(tid)
    return [([frame.get("function", "") for frame in frames[at:at + first.get("repeatLength", 0)]], int(first["repeatCount"]))
            for at, first in enumerate(frames) if int(first.get("repeatCount", 0))]


@dataclasses.dataclass
class Comparison:
    frames: int
    exact: int
    explained: collections.Counter
    unexplained: list


def below_handler(theirs):
    """What a handler of the program was called for, where the core was written inside it."""
    return theirs[[frame.function for frame in theirs].index(oracle.SIGNAL_FRAME) + 1:]


def compare(dump, tid, theirs, most=None):
    """Compares the stack of the thread that crashed with gdb's frames of it; only the innermost `most`, if given."""
    paths = {os.path.basename(module["path"]): module["path"] for module in dump.modules}
    ours = oracle.frames_of_stackd(unfolded(dump, tid))
    ours, theirs = ours[:most], theirs[:most]
    # Both were cut, or ours ends where its middle is missing.
    if len(ours) != len(theirs) and (len(ours) > MOST_FRAMES // 2 or int((dump.stack(tid) or {}).get("omittedBytes", 0))):
        shorter = min(len(ours), len(theirs))
        ours, theirs = ours[:shorter], theirs[:shorter]

    def is_alias(mine, other):
        path = paths.get(mine.module)
        return (bool(mine.function and other.function) and path is not None and os.path.exists(path) and
                symbol_aliases.same_function(path, mine.function, other.function))

    result = Comparison(len(theirs), 0, collections.Counter(), [])
    differences = oracle.compare(tid, ours, theirs, is_alias)
    for difference in differences:
        reason = explanation(difference, paths, dump.resource["crash"]["cause"])
        if reason:
            result.explained[reason] += 1
        else:
            result.unexplained.append(str(difference))
    result.exact = len(theirs) - sum(d.kind != "EXTRA" for d in differences)
    return result


def imports(path, function):
    """Whether the file at `path` asks others for a function of this name."""
    text = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True).stdout
    return bool(function) and function in {line.split()[-1].split("@")[0] for line in text.splitlines()}


def explanation(difference, paths, cause):
    """Why a difference is none of ours to mend, or None. Beside those of right_test: a recursion is folded to one line."""
    mine, other = difference.ours, difference.theirs
    if difference.kind == "ALIAS":
        return "another name of the same address"
    if difference.kind == "NAME" and difference.depth == 0 and cause == "BAD_JUMP" and not mine.function:
        return "gdb names the data that was jumped to"
    if difference.kind == "LINE" and not mine.file:
        return "folded: one place stands for all"
    if difference.kind == "LINE" and mine.module in paths:
        offset = mine.module_offset - (not mine.interrupted)
        text = subprocess.run(["addr2line", "-i", "-e", paths[mine.module], hex(offset)], capture_output=True,
                              text=True).stdout
        if f"{mine.file}:{mine.line}" in {os.path.basename(line.split(" ")[0]) for line in text.splitlines()}:
            return "a row of the line table that gdb skips, confirmed by addr2line"
    if difference.kind == "NAME" and not other.function and any(imports(path, mine.function) for path in paths.values()):
        return "gdb has no symbol there; it is named as what its caller imports"
    if difference.kind == "NAME" and other.file.endswith(".rs"):
        same_name = oracle.rust_last_part(mine.function) == oracle.rust_last_part(other.function)
        # The panic handler is linked by a name that the compiler makes up.
        same_name = same_name or mine.function.startswith("__rustc::")
        if same_name and (mine.file, mine.line, mine.inlined) == (other.file, other.line, other.inlined):
            return "Rust: the symbol's name, not one made from debug information"
    return None
