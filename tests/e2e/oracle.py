"""What gdb says of a process, and how that compares with what stackd says.

Both are made comparable here, and nowhere else. Argument lists and return types are dropped from names (gdb prints arguments apart
from the name). So are the compiler's clone suffixes, spaces and integer suffixes in template arguments.

Frames that gdb deduces from call-site records are left out: a function that ended in a jump to another has no frame any
more. No unwinder finds it on the stack; gdb guesses it where there is one way only that the program can have taken.
"""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SIGNAL_FRAME = "<signal handler called>"

# gdb hangs on a thread in vfork: the kernel does not let it stop.
GDB_LIMIT_S = 120


@dataclasses.dataclass(frozen=True)
class Frame:
    function: str  # comparable(); "" when it is not known
    file: str  # base name
    line: int
    inlined: bool
    module: str
    pc: int = dataclasses.field(compare=False, default=0)
    module_offset: int = dataclasses.field(compare=False, default=0)  # stackd's only
    # `pc` is an instruction that was interrupted, not one behind a call. stackd's only.
    interrupted: bool = dataclasses.field(compare=False, default=False)

    def __str__(self):
        place = f" at {self.file}:{self.line}" if self.file else ""
        mark = " [inlined]" if self.inlined else ""
        return f"{self.function or '??'}{place} ({self.module or '?'}){mark}"


def _without_trailing_arguments(name):
    """Drops "(...)" and what follows it, when the name ends so: "f(int) const", but not "operator()"."""
    trimmed = re.sub(r"((\s+|(?<=\)))(const|volatile|noexcept)|\s*(&|&&|\[clone [^\]]*\]))+$", "", name)
    if not trimmed.endswith(")"):
        return name if trimmed == name else trimmed
    depth = 0
    for at in range(len(trimmed) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(trimmed[at], 0)
        if depth == 0:
            head = trimmed[:at]
            return trimmed if head.endswith("operator") or not head else head
    return trimmed


def _without_return_type(name):
    """Templates are demangled with the type that they return in front."""
    depth = 0
    cut = 0
    for at, character in enumerate(name):
        before = name[:at]
        if before.endswith("operator") and character in "<>(-= ":
            return name[cut:]
        if character in "<({[":
            depth += 1
        elif character in ">)}]":
            depth -= 1
        elif character == " " and depth == 0:
            cut = at + 1
    return name[cut:]


def _balanced(text, start, opening, closing):
    """The index behind the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {opening: 1, closing: -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


def _without_lambda_arguments(name):
    """{lambda(int)#1} (demangler) and <lambda(int)> (debug information) are the same lambda."""
    for start_mark, opening, closing in (("{lambda(", "{", "}"), ("<lambda(", "<", ">")):
        while (start := name.find(start_mark)) >= 0:
            name = name[:start] + "{lambda}" + name[_balanced(name, start, opening, closing):]
    return name


def comparable(name):
    if not name or name == "??":
        return ""
    name = name.strip()
    name = re.sub(r"\[abi:[^\]]*\]", "", name)
    name = re.sub(r"(\.(isra|part|constprop|cold|lto_priv|llvm|localalias)(\.\d+)*)+$", "", name)
    name = name.replace("(anonymous namespace)", "{anonymous}")
    name = _without_lambda_arguments(name)
    name = _without_trailing_arguments(name)
    # A function inside a function: "main()::f" or "f(int)::{lambda}".
    name = re.sub(r"\((?:[^()]|\([^()]*\))*\)(?: const)?::", "::", name)
    name = _without_return_type(name)
    name = re.sub(r"(\d)(ul|l|u)\b", r"\1", name)
    name = re.sub(r"\s+", " ", name)
    name = re.sub(r" ?([<>,*&(]) ?", r"\1", name)
    # gdb leaves out where a lambda was written.
    name = re.sub(r"^.*\{lambda\}::(operator\(\)|_FUN)", r"\1", name)
    # Rust: the hash of legacy mangling.
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    return name


def rust_last_part(name):
    """`call_once` of "core::panic::unwind_safe::{impl#23}::call_once<(), fn()>"; closures are all one."""
    name = re.sub(r"\{+(closure|closure_env|vtable\.shim|impl)(#\d+)?\}+", lambda match: "{" + match.group(1) + "}", name)
    name = name.replace("{vtable.shim}", "")
    depth = 0
    outside = ""
    for at, character in enumerate(name):
        depth += character == "<"
        if depth == 0:
            outside += character
        depth -= character == ">" and name[at - 1] != "-"
    return outside.rstrip(":").rsplit("::", 1)[-1]


def of_stackd(dump, tid):
    return frames_of_stackd(unfolded(dump.frames(tid)))


def unfolded(resources):
    """Frames with those of a recursion as often as they occurred."""
    result = []
    at = 0
    while at < len(resources):
        length = max(resources[at].get("repeatLength", 0), 1)
        result += resources[at:at + length] * max(int(resources[at].get("repeatCount", 0)), 1)
        at += length
    return result


def frames_of_stackd(resources):
    frames = []
    interrupted = {frame.get("address") for frame in resources if frame.get("origin") in ("REGISTERS", "SIGNAL_FRAME")}
    for frame in resources:
        function = frame.get("function", "")
        if function in ("__restore_rt", SIGNAL_FRAME):
            function = SIGNAL_FRAME
        frames.append(Frame(function if function == SIGNAL_FRAME else comparable(function),
                            os.path.basename(frame.get("file", "")) if function != SIGNAL_FRAME else "",
                            frame.get("line", 0) if function != SIGNAL_FRAME else 0,
                            frame.get("origin") == "INLINED", frame.get("module", ""),
                            int(frame.get("address") or "0", 16), int(frame.get("moduleOffset") or "0", 16),
                            frame.get("address") in interrupted))
    return frames


def of_gdb(pid, debug_dir=None):
    """{tid: [Frame]} of a process that gdb stops for the time."""
    return _ask_gdb(["-p", str(pid)], debug_dir=debug_dir)


def of_gdb_core(program, core, most_frames):
    """{tid: [Frame]} of a core file, at most `most_frames` of each thread."""
    return _ask_gdb([str(program), str(core)], most_frames=most_frames)


def _ask_gdb(subject, debug_dir=None, most_frames=None):
    with tempfile.NamedTemporaryFile(suffix=".json") as output:
        settings = ["set debuginfod enabled off", "set pagination off", "set backtrace past-main on",
                    "set backtrace past-entry on", "set auto-solib-add on"]
        if debug_dir:
            settings.append(f"set debug-file-directory {debug_dir}:/usr/lib/debug")
        command = ["gdb", "-nx", "-batch"]
        for setting in settings:
            command += ["-iex", setting]
        command += [*subject, "-x", str(HERE / "gdb_frames.py")]
        environment = dict(os.environ, STACKD_GDB_OUTPUT=output.name, LC_ALL="C.UTF-8")
        if most_frames:
            environment["STACKD_GDB_FRAMES"] = str(most_frames)
        environment.pop("DEBUGINFOD_URLS", None)
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=GDB_LIMIT_S)
        text = output.read()
        if not text:
            raise AssertionError(f"gdb gave no frames: {done.stdout[-1000:]} {done.stderr[-2000:]}")
    return {int(tid): _on_the_stack(frames) for tid, frames in json.loads(text).items()}


def _on_the_stack(gdb_frames):
    frames = []
    for f in gdb_frames:
        if f["tail_call"]:
            # With what was inlined into it, which gdb lists before it.
            while frames and frames[-1].pc == f["pc"] and frames[-1].inlined:
                frames.pop()
        elif f["signal"]:
            frames.append(Frame(SIGNAL_FRAME, "", 0, False, f["module"], f["pc"]))
        else:
            frames.append(Frame(comparable(f["name"]), f["file"], f["line"], f["inlined"], f["module"], f["pc"]))
    return frames


@dataclasses.dataclass(frozen=True)
class Difference:
    """One place where the two are apart. `kind`: NAME, ALIAS (another name of the same function), LINE, INLINE, MISSING (gdb
    alone has the frame) or EXTRA (stackd alone)."""

    kind: str
    tid: int
    depth: int
    ours: Frame | None
    theirs: Frame | None

    def __str__(self):
        return f"tid {self.tid} #{self.depth} {self.kind}: stackd {self.ours or '-'} | gdb {self.theirs or '-'}"


def _kind_of_pair(ours, theirs, is_alias):
    """What is different between two frames that are taken for the same; None: nothing."""
    if ours.function != theirs.function:
        return "ALIAS" if is_alias(ours, theirs) else "NAME"
    if ours.inlined != theirs.inlined:
        return "INLINE"
    # gdb's word counts where it has one; a line that only we know is none of gdb's business.
    if theirs.file and (ours.file, ours.line) != (theirs.file, theirs.line):
        return "LINE"
    return None


# The cheapest way to turn one stack into the other is the one reported.
COST = {None: 0, "LINE": 1, "ALIAS": 1, "INLINE": 2, "NAME": 4, "MISSING": 3, "EXTRA": 3}


def compare(tid, ours, theirs, is_alias=lambda ours, theirs: False):
    """The differences, innermost first. Frames are aligned, so that one missing frame is one difference and not all that
    follow."""
    # cost[i][j]: of the best way from ours[i:] to theirs[j:], and its first step.
    rows, columns = len(ours), len(theirs)
    best = [[None] * (columns + 1) for _ in range(rows + 1)]
    best[rows][columns] = (0, None)
    for i in range(rows, -1, -1):
        for j in range(columns, -1, -1):
            ways = []
            if i < rows and j < columns:
                kind = _kind_of_pair(ours[i], theirs[j], is_alias)
                ways.append((COST[kind] + best[i + 1][j + 1][0], kind or "SAME"))
            if i < rows:
                ways.append((COST["EXTRA"] + best[i + 1][j][0], "EXTRA"))
            if j < columns:
                ways.append((COST["MISSING"] + best[i][j + 1][0], "MISSING"))
            if ways:
                best[i][j] = min(ways, key=lambda way: way[0])

    differences = []
    i = j = 0
    while best[i][j][1] is not None:
        kind = best[i][j][1]
        if kind != "SAME":
            differences.append(Difference(kind, tid, i, None if kind == "MISSING" else ours[i],
                                          None if kind == "EXTRA" else theirs[j]))
        i, j = i + (kind != "MISSING"), j + (kind != "EXTRA")
    return differences
