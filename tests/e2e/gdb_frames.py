"""Runs inside gdb: writes the frames of every thread of the process or core file as JSON to $STACKD_GDB_OUTPUT. It writes at most
$STACKD_GDB_FRAMES of each, if that is set.

The same walk as `thread apply all bt`, by gdb's own API: no text to parse.
"""

import json
import os

import gdb


def frames_of_selected_thread():
    frames = []
    most = int(os.environ.get("STACKD_GDB_FRAMES", "1000000000"))
    frame = gdb.newest_frame()
    while frame is not None and frame.is_valid() and len(frames) < most:
        sal = frame.find_sal()
        library = gdb.solib_name(frame.pc())
        frames.append({
            "pc": frame.pc(),
            "name": frame.name() or "",
            "inlined": frame.type() == gdb.INLINE_FRAME,
            "signal": frame.type() == gdb.SIGTRAMP_FRAME,
            "tail_call": frame.type() == gdb.TAILCALL_FRAME,
            "file": os.path.basename(sal.symtab.filename) if sal and sal.symtab else "",
            "line": sal.line if sal and sal.symtab else 0,
            "module": os.path.basename(library) if library else "",
        })
        try:
            frame = frame.older()
        except gdb.error as error:
            frames.append({"pc": 0, "name": f"(gdb: {error})", "inlined": False, "signal": False,
                           "tail_call": False, "file": "", "line": 0, "module": ""})
            break
    return frames


def main():
    threads = {}
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        threads[thread.ptid[1]] = frames_of_selected_thread()
    with open(os.environ["STACKD_GDB_OUTPUT"], "w") as output:
        json.dump(threads, output)


main()
