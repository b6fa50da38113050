"""For gdb (gdb -p PID -x gdb_deadlock.py): which threads wait for which, as far as glibc's locks say who has them.

What an engineer with gdb and an afternoon writes. It looks for threads in futex() below a lock function of glibc 2.36 (Debian 12),
x86-64. It reads the owner out of the lock, and follows the owners.
"""

import gdb

SYS_FUTEX = 202
OWNER_IN_MUTEX = 8
WRITER_IN_RWLOCK = 24
# The futex words of an rwlock that waiters use.
WAITED_IN_RWLOCK = (8, 12)
FRAMES = 6


def functions():
    """Names of the innermost frames of the selected thread."""
    frame = gdb.newest_frame()
    names = []
    while frame is not None and len(names) < FRAMES:
        names.append(frame.name() or "??")
        frame = frame.older()
    return names


def int_at(address):
    data = gdb.selected_inferior().read_memory(address, 4).tobytes()
    return int.from_bytes(data, "little", signed=True)


def waits_of_threads():
    """(tid, what it waits for in words, tid of the owner or 0) of each thread that waits for a lock; the tids of all."""
    waits, tids = [], set()
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        tid = thread.ptid[1]
        tids.add(tid)
        names = functions()
        gdb.newest_frame().select()
        if int(gdb.parse_and_eval("$orig_rax")) != SYS_FUTEX:
            continue
        futex = int(gdb.parse_and_eval("$rdi")) & (1 << 64) - 1
        text = " ".join(names)
        if "mutex_lock" in text or "mutex_timedlock" in text or "mutex_clocklock" in text:
            waits.append((tid, f"mutex {futex:#x}", int_at(futex + OWNER_IN_MUTEX)))
        elif "rwlock" in text:
            # Which of the two words it is cannot be told from the address; the one whose lock has a writer is.
            writers = [int_at(futex - offset + WRITER_IN_RWLOCK) for offset in WAITED_IN_RWLOCK]
            waits.append((tid, f"rwlock at {futex:#x}", next((tid for tid in writers if tid > 0), 0)))
        elif "join" in text:
            waits.append((tid, "the end of a thread", int_at(futex)))
    return waits, tids


def circles(owner_of):
    found = []
    for start in owner_of:
        path = [start]
        while path[-1] in owner_of and owner_of[path[-1]] not in path:
            path.append(owner_of[path[-1]])
        if owner_of.get(path[-1]) == start and start == min(path):
            found.append(path)
    return found


def main():
    waits, tids = waits_of_threads()
    for tid, what, owner in waits:
        known = owner in tids
        print(f"LWP {tid} waits for {what}, owner " + (f"LWP {owner}" if known else f"{owner}, which is no thread"))
    for circle in circles({tid: owner for tid, _, owner in waits}):
        print("DEADLOCK: " + " -> ".join(f"LWP {tid}" for tid in [*circle, circle[0]]))
    print(f"{len(waits)} of {len(tids)} threads wait for a lock")


main()
