"""What must be said of each program of tests/hangs: the table that hang_victims_test.py goes through.

A thread is meant by its name. Of a finding or a wait only what stands here is compared. What a victim's row does not expect, but
would call the program hung, fails as well.
"""

import dataclasses

HANG, SUSPICIOUS, HARMLESS = "HANG", "SUSPICIOUS", "HARMLESS"
KNOWN, NONE, NOT_RECORDED, GONE, NOT_KNOWN = "KNOWN", "NONE", "NOT_RECORDED", "GONE", "NOT_KNOWN"
OTHER_PROCESS = "OTHER_PROCESS"


@dataclasses.dataclass(frozen=True)
class Finding:
    kind: str  # or several, with "|": whichever it is, it is right
    severity: str
    threads: tuple = ()  # each of them is concerned
    edges: tuple = ()  # (waiter, owner), in the order of the circle, whichever comes first
    says: tuple = ()  # each is found somewhere in its text


@dataclasses.dataclass(frozen=True)
class Wait:
    kind: str  # or several, with "|"
    owner: str = ""  # likewise
    by: str = ""  # the owner's name
    place: str = ""
    lock_kind: str = ""
    says: str = ""
    fd: str = ""
    timed: bool | None = None
    waiter_count: int | None = None


@dataclasses.dataclass(frozen=True)
class Victim:
    program: str
    mode: str
    waits: dict
    findings: tuple = ()
    asks_gdb: bool = False  # who owns the mutexes, in gdb's opinion
    asks_lslocks: bool = False  # which process has the file locks, likewise
    # What the test does to it before the dump; see hang_victims_test.py.
    then: str = ""

    @property
    def name(self):
        return "_".join(filter(None, [self.program.removeprefix("hang_"), self.mode, self.then]))


def cycle(count):
    return tuple((f"cycle-{i}", f"cycle-{(i + 1) % count}") for i in range(count))


def cycle_waits(count, **more):
    return {waiter: Wait("MUTEX", KNOWN, by=owner, **more) for waiter, owner in cycle(count)}


TWO_LOCKS = Finding("DEADLOCK", HANG, edges=cycle(2), says=("accounts_lock", "orders_lock", "take_own_then_next"))


def cycle_2(mode, lock_kind):
    waits = {"cycle-0": Wait("MUTEX", KNOWN, by="cycle-1", place="hang_mutex: orders_lock", lock_kind=lock_kind, waiter_count=1),
             "cycle-1": Wait("MUTEX", KNOWN, by="cycle-0", place="hang_mutex: accounts_lock", lock_kind=lock_kind,
                             waiter_count=1)}
    return Victim("hang_mutex", mode, waits, (TWO_LOCKS,), asks_gdb=True)


def queue(owner, owner_wait, count=3, first=1, lock="orders_lock", says=()):
    """What is said of `count` threads that wait for a lock whose owner is in `owner_wait`."""
    waiters = [f"waiter-{i}" for i in range(first, first + count)]
    waits = {name: Wait("MUTEX", KNOWN, by=owner, place=lock, waiter_count=count) for name in waiters}
    return waits | {owner: owner_wait}, (Finding("OWNER_BLOCKED", SUSPICIOUS, threads=(owner, *waiters), says=(lock, *says)),)


MUTEX_VICTIMS = [
    cycle_2("cycle_2", "normal"),
    cycle_2("cycle_recursive", "recursive"),
    cycle_2("cycle_errorcheck", "errorcheck"),
    cycle_2("cycle_adaptive", "adaptive"),
    cycle_2("cycle_robust", "robust"),
    Victim("hang_mutex", "cycle_3", cycle_waits(3, place="hang_mutex: (accounts|orders|stock)_lock"),
           (Finding("DEADLOCK", HANG, edges=cycle(3), says=("accounts_lock", "orders_lock", "stock_lock")),)),
    Victim("hang_mutex", "cycle_10_on_heap", cycle_waits(10, place="heap"),
           (Finding("DEADLOCK", HANG, edges=cycle(10)),)),
    # One of the two was refused by the kernel, and waits on a word of its own stack.
    Victim("hang_mutex", "cycle_priority_inheritance", {"cycle-0": Wait("MUTEX"), "cycle-1": Wait("MUTEX")},
           (Finding("DEADLOCK|SELF_DEADLOCK|OWNER_BLOCKED", HANG, threads=("cycle-0", "cycle-1")),)),
    Victim("hang_mutex", "self_normal", {"selfish": Wait("MUTEX", KNOWN, by="selfish", place="accounts_lock")},
           (Finding("SELF_DEADLOCK", HANG, threads=("selfish",), says=("accounts_lock", "lock_twice")),)),
    Victim("hang_mutex", "self_robust", {"selfish": Wait("MUTEX", KNOWN, by="selfish", lock_kind="robust")},
           (Finding("SELF_DEADLOCK", HANG, threads=("selfish",), says=("accounts_lock",)),)),
    Victim("hang_mutex", "self_errorcheck", {"careful": Wait("SLEEP", NONE)}),
    Victim("hang_mutex", "self_recursive", {"careful": Wait("SLEEP", NONE)}),
    Victim("hang_mutex", "abandoned", {"waiter-0": Wait("MUTEX", GONE), "waiter-1": Wait("MUTEX", GONE, waiter_count=2)},
           (Finding("ABANDONED_LOCK", HANG, threads=("waiter-0", "waiter-1"), says=("accounts_lock",)),)),
    Victim("hang_mutex", "robust_owner_died", {}),
    Victim("hang_mutex", "owner_asleep", *queue("owner", Wait("SLEEP", NONE), first=0, lock="accounts_lock", says=("sleep",)),
           asks_gdb=True),
    Victim("hang_mutex", "owner_asleep_timed_waiter",
           {"patient": Wait("MUTEX", KNOWN, by="owner", timed=True), "owner": Wait("SLEEP", NONE)}),
    Victim("hang_mutex", "owner_reads_socket",
           *queue("owner", Wait("READ", NONE, fd="unix|socket"), first=0, lock="accounts_lock", says=("read",))),
    Victim("hang_mutex", "chain",
           {"waiter-0": Wait("MUTEX", KNOWN, by="middle"), "middle": Wait("MUTEX", KNOWN, by="sleeper", place="orders_lock"),
            "sleeper": Wait("SLEEP", NONE)},
           (Finding("OWNER_BLOCKED", SUSPICIOUS, threads=("sleeper",), says=("orders_lock", "sleep")),)),
    Victim("hang_mutex", "convoy_500", {"waiter-0": Wait("MUTEX", KNOWN, by="owner", place="accounts_lock", waiter_count=500)},
           (Finding("LOCK_CONVOY", SUSPICIOUS, threads=("owner", "waiter-499"), says=("500", "accounts_lock")),)),
    Victim("hang_mutex", "owner_is_nonsense", {"waiter-0": Wait("MUTEX|FUTEX", NOT_KNOWN)}),
    Victim("hang_mutex", "fork_with_lock", {"hang_mutex": Wait("MUTEX", GONE, place="accounts_lock", says="fork")},
           (Finding("ABANDONED_LOCK", HANG, threads=("hang_mutex",), says=("accounts_lock",)),), then="in_child"),
]

SYNC_VICTIMS = [
    # glibc counts readers and does not say who they are: not even that it is the thread itself.
    Victim("hang_sync", "rwlock_upgrade", {"upgrader": Wait("RWLOCK_WRITE", NOT_RECORDED, place="prices_lock", says="reader")},
           (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=("upgrader",), says=("prices_lock", "reader")),)),
    Victim("hang_sync", "rwlock_writer_asleep",
           {"reader": Wait("RWLOCK_READ", KNOWN, by="owner", place="prices_lock"),
            "writer": Wait("RWLOCK_WRITE", KNOWN, by="owner", place="prices_lock"), "owner": Wait("SLEEP", NONE)},
           (Finding("OWNER_BLOCKED", SUSPICIOUS, threads=("owner", "reader", "writer"), says=("prices_lock",)),)),
    Victim("hang_sync", "rwlock_reader_asleep", {"writer": Wait("RWLOCK_WRITE", NOT_RECORDED, says="reader")},
           (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=("writer",), says=("prices_lock",)),)),
    # The writer waits for one of the readers, and the only one waits behind it: nothing else is left.
    Victim("hang_sync", "rwlock_read_again",
           {"reader": Wait("RWLOCK_READ", NOT_RECORDED, place="fees_lock", lock_kind="prefers writers"),
            "writer": Wait("RWLOCK_WRITE", NOT_RECORDED, says="1 reader")},
           (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=("reader", "writer"),
                    says=("fees_lock", "asks again waits behind the writer", "no thread of the process runs")),)),
    Victim("hang_sync", "mixed_cycle",
           {"writer": Wait("MUTEX", KNOWN, by="reader", place="orders_lock"),
            "reader": Wait("RWLOCK_READ", KNOWN, by="writer", place="prices_lock")},
           (Finding("DEADLOCK", HANG, edges=(("writer", "reader"), ("reader", "writer")),
                    says=("orders_lock", "prices_lock")),)),
    Victim("hang_sync", "rwlock_cycle",
           {"prices-first": Wait("RWLOCK_WRITE", KNOWN, by="taxes-first", place="taxes_lock"),
            "taxes-first": Wait("RWLOCK_WRITE", KNOWN, by="prices-first", place="prices_lock")},
           (Finding("DEADLOCK", HANG, edges=(("prices-first", "taxes-first"), ("taxes-first", "prices-first"))),)),
    Victim("hang_sync", "join_cycle", {f"joiner-{i}": Wait("JOIN", KNOWN, by=f"joiner-{(i + 1) % 3}") for i in range(3)},
           (Finding("DEADLOCK", HANG, edges=tuple((f"joiner-{i}", f"joiner-{(i + 1) % 3}") for i in range(3))),)),
    Victim("hang_sync", "join_with_lock",
           {"stopper": Wait("JOIN", KNOWN, by="worker"), "worker": Wait("MUTEX", KNOWN, by="stopper", place="orders_lock")},
           (Finding("DEADLOCK", HANG, edges=(("stopper", "worker"), ("worker", "stopper")), says=("orders_lock",)),)),
    # The very words of a pool that main() joins and that has nothing to do: it must not be called hung.
    Victim("hang_sync", "lost_wakeup",
           {"consumer": Wait("CONDITION_VARIABLE", NONE, place="work_came"), "shutdown": Wait("JOIN", KNOWN, by="consumer")}),
    Victim("hang_sync", "owner_in_condition_wait",
           {"owner": Wait("CONDITION_VARIABLE", NONE, place="work_came"), "reader": Wait("RWLOCK_READ", KNOWN, by="owner")},
           (Finding("OWNER_BLOCKED|NOBODY_TO_WAKE", SUSPICIOUS, threads=("owner", "reader"), says=("prices_lock",)),)),
    Victim("hang_sync", "destroyed_with_waiter",
           {"consumer": Wait("CONDITION_VARIABLE", NONE, place="work_came"),
            "destroyer": Wait("CONDITION_VARIABLE", NOT_RECORDED, place="work_came")},
           (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=("destroyer",),
                    says=("destroy_work_came", "to be destroyed when no thread waits")),)),
    Victim("hang_sync", "once_recursion", {"initializer": Wait("ONCE", place="settings_once")},
           (Finding("SELF_DEADLOCK", HANG, threads=("initializer",), says=("once|one-time", "read_settings")),)),
    Victim("hang_sync", "once_initializer_asleep", {"user-1": Wait("ONCE"), "user-2": Wait("ONCE")},
           (Finding("OWNER_BLOCKED|OWNER_UNKNOWN", SUSPICIOUS, threads=("user-1", "user-2")),)),
    Victim("hang_sync", "semaphore",
           {"taker": Wait("SEMAPHORE", NONE, place="tickets", timed=False), "patient": Wait("SEMAPHORE", NONE, timed=True)}),
    Victim("hang_sync", "barrier_one_missing",
           {"early-1": Wait("BARRIER", NONE, place="three_come"), "early-2": Wait("BARRIER", waiter_count=2)}),
    Victim("hang_sync", "malloc_in_handler", {"allocator": Wait("INTERNAL_LOCK", says="malloc")},
           (Finding("SELF_DEADLOCK", HANG, threads=("allocator",), says=("malloc", "signal handler")),)),
    Victim("hang_sync", "time_zone_in_handler", {"clock": Wait("INTERNAL_LOCK")},
           (Finding("SELF_DEADLOCK", HANG, threads=("clock",), says=("tzset", "signal handler")),)),
    Victim("hang_sync", "time_zone_after_fork", {"hang_sync": Wait("INTERNAL_LOCK", NOT_RECORDED)},
           (Finding("NOBODY_TO_WAKE", HANG, threads=("hang_sync",), says=("no thread of the process runs", "tzset_lock")),),
           then="in_child"),
    Victim("hang_sync", "stack_cache_in_munmap",
           {f"creator-{i}": Wait("INTERNAL_LOCK", says="stack") for i in (1, 2, 3)},
           (Finding("LOCK_CONVOY|OWNER_BLOCKED", SUSPICIOUS, threads=("creator-1", "creator-2", "creator-3", "unmapper"),
                    says=("munmap", "stack")),)),
]

KERNEL_VICTIMS = [
    # A stream of stdio says who has it, by the address of the thread's control block.
    Victim("hang_kernel", "stream_to_full_pipe",
           {"writer": Wait("WRITE", fd="pipe:")} | {
               name: Wait("INTERNAL_LOCK", KNOWN, by="writer", lock_kind="stdio lock", waiter_count=2)
               for name in ("logger-1", "logger-2")},
           (Finding("OWNER_BLOCKED", SUSPICIOUS, threads=("writer", "logger-1", "logger-2"), says=("stdio lock", "write to")),)),
    Victim("hang_kernel", "child_hangs", *queue("owner", Wait("CHILD", NONE), says=("child",))),
    Victim("hang_kernel", "owner_uninterruptible", *queue("owner", Wait("DISK|CHILD", NONE), says=("vfork|uninterruptibl",))),
    Victim("hang_kernel", "owner_in_io_uring", *queue("owner", Wait("EVENTS", NONE, fd="io_uring"), says=("waits for events",))),
    # Without a system call, and yet asleep: for a page that does not come.
    Victim("hang_kernel", "owner_in_page_fault",
           {"owner": Wait(""), **{f"waiter-{i}": Wait("MUTEX", KNOWN, by="owner") for i in (1, 2, 3)}},
           (Finding("LOCK_CONVOY", SUSPICIOUS, threads=("owner", "waiter-1", "waiter-2", "waiter-3"),
                    says=("which is asleep outside of system calls", "page of its memory")),)),
    # The lock is free before its waiter is woken, which the dump's own signal may do.
    Victim("hang_kernel", "owner_wakes", {"waker": Wait("SYSTEM_CALL|"), "waiter-1": Wait("MUTEX", NONE)}),
    Victim("hang_kernel", "owner_waits_for_flock", *queue("owner", Wait("FILE_LOCK", NOT_RECORDED, fd="hang_kernel"),
                                                          says=("held by this process itself",))),
    Victim("hang_kernel", "record_lock_of_another_process",
           {"locker": Wait("FILE_LOCK", OTHER_PROCESS, fd="hang_kernel", says=r"held by hang_kernel \(pid \d+\)")},
           (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=("locker",), says=("hang_kernel",)),), asks_lslocks=True),
    Victim("hang_kernel", "pipe_full", {"producer": Wait("WRITE", fd="pipe:")},
           (Finding("NOBODY_TO_WAKE", "SUSPICIOUS|HANG", threads=("producer",), says=("pipe",)),)),
    Victim("hang_kernel", "pipe_with_own_writer", {"consumer": Wait("READ", fd="pipe:")},
           (Finding("NOBODY_TO_WAKE", "SUSPICIOUS|HANG", threads=("consumer",), says=("pipe",)),)),
    Victim("hang_kernel", "both_ends_read", {"left": Wait("READ", fd="unix|socket"), "right": Wait("READ", fd="unix|socket")}),
    Victim("hang_kernel", "message_queue_empty", {"receiver": Wait("IPC")}),
    Victim("hang_kernel", "home_made",
           {"taker-1": Wait("FUTEX", f"{NOT_RECORDED}|{NOT_KNOWN}|{NONE}", place="home_made_lock", waiter_count=2),
            "bystander": Wait("SLEEP", NONE)}),
    Victim("hang_kernel", "queue_for_main", {}, (Finding("STOPPED", "SUSPICIOUS|HANG", says=("stop",)),), then="stopped"),
    Victim("hang_kernel", "queue_for_main", {}, (Finding("STOPPED", "SUSPICIOUS|HANG", says=("fr[eo]+ze",)),), then="frozen"),
    Victim("hang_kernel", "queue_for_main", {}, (Finding("STOPPED", "SUSPICIOUS|HANG", says=("fr[eo]+ze",)),),
           then="frozen_by_v2"),
]

CPP_VICTIMS = [
    Victim("hang_cpp", "transfer_cycle",
           {"there": Wait("MUTEX", KNOWN, by="back", place="heap", lock_kind="normal"),
            "back": Wait("MUTEX", KNOWN, by="there", place="heap")},
           (Finding("DEADLOCK", HANG, edges=(("there", "back"), ("back", "there")), says=("Transfer",)),), asks_gdb=True),
    Victim("hang_cpp", "shared_mutex_cycle",
           {"prices-first": Wait("RWLOCK_READ", KNOWN, by="taxes-first"),
            "taxes-first": Wait("RWLOCK_READ", KNOWN, by="prices-first")},
           (Finding("DEADLOCK", HANG, edges=(("prices-first", "taxes-first"), ("taxes-first", "prices-first"))),)),
    Victim("hang_cpp", "future_never_set", {"asker": Wait("FUTURE")},
           (Finding("NOBODY_TO_WAKE", "SUSPICIOUS|HANG", threads=("asker",), says=("future|promise",)),)),
    # Nothing records who is to set a future: that it is a task of the same pool is a suspicion.
    Victim("hang_cpp", "starved_pool", {f"worker-{i}": Wait("FUTURE") for i in range(3)},
           (Finding("STARVED_POOL", "HANG|SUSPICIOUS", threads=("worker-0", "worker-1", "worker-2"), says=("WorkerLoop",)),)),
    # That another task of the pool is to act is recorded nowhere, and a pool that has nothing to do looks the same.
    Victim("hang_cpp", "latch_pool", {f"worker-{i}": Wait("ATOMIC", NONE) for i in range(3)}),
    Victim("hang_cpp", "condition_pool", {f"worker-{i}": Wait("CONDITION_VARIABLE", NONE) for i in range(3)}),
    Victim("hang_cpp", "stop_not_heard",
           {"worker": Wait("CONDITION_VARIABLE", NONE), "stopper": Wait("JOIN", KNOWN, by="worker")}),
    # No pool: two plain threads.
    Victim("hang_cpp", "two_futures", {"first": Wait("FUTURE"), "second": Wait("FUTURE")},
           (Finding("NOBODY_TO_WAKE", SUSPICIOUS, threads=("first", "second"), says=("as far as can be seen",)),)),
    Victim("hang_cpp", "atomic_wait", {"atomic": Wait("ATOMIC", NONE, place="state")}),
    Victim("hang_cpp", "latch", {"latch": Wait("ATOMIC", NONE, place="two")}),
    Victim("hang_cpp", "semaphore", {"semaphore": Wait("ATOMIC|SEMAPHORE", NONE, place="tickets")}),
    Victim("hang_cpp", "barrier", {"barrier-1": Wait("ATOMIC|BARRIER", NONE), "barrier-2": Wait("ATOMIC|BARRIER", NONE)}),
    Victim("hang_cpp", "static_variables_cycle", {"settings": Wait("ONCE"), "registry": Wait("ONCE")},
           (Finding("DEADLOCK|OWNER_UNKNOWN", "HANG|SUSPICIOUS", threads=("settings",)),)),
    Victim("hang_cpp", "call_once_and_mutex",
           {"opener": Wait("MUTEX", KNOWN, by="booker", place="ledger"), "booker": Wait("ONCE", KNOWN, by="opener", place="opened")},
           (Finding("DEADLOCK", HANG, edges=(("opener", "booker"), ("booker", "opener")), says=("ledger", "inferred")),)),
    Victim("hang_cpp", "call_once_recursion", {"loader": Wait("ONCE", place="loaded")},
           (Finding("SELF_DEADLOCK", HANG, threads=("loader",), says=("once|one-time", "Load")),)),
]


def rust_unknown(*threads):
    return (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=threads, says=("Rust",)),)


def rust_hang(*threads):
    """Each of these waits for a lock, and no other thread of the program can have it and go on."""
    return tuple(Finding("OWNER_UNKNOWN", HANG, threads=(thread,), says=("Rust", "no thread of the process runs"))
                 for thread in threads)


RUST_MUTEX = Wait("MUTEX", NOT_RECORDED, says="Rust")
RUST_READ = Wait("RWLOCK_READ", NOT_RECORDED, says="Rust")
ROOM_IN_CHANNEL = Wait("FUTEX", NOT_RECORDED, lock_kind="room in a channel", says="which thread is to receive from it")
RUST_VICTIMS = [
    Victim("hang_rust", "mutex_cycle", {"there": RUST_MUTEX, "back": RUST_MUTEX}, rust_unknown("there") + rust_unknown("back")),
    Victim("hang_rust", "mutex_cycle_joined", {"there": RUST_MUTEX, "back": RUST_MUTEX}, rust_hang("there", "back")),
    Victim("hang_rust", "rwlock_cycle", {"prices-first": RUST_READ, "taxes-first": RUST_READ},
           rust_unknown("prices-first") + rust_unknown("taxes-first")),
    Victim("hang_rust", "rwlock_cycle_joined", {"prices-first": RUST_READ, "taxes-first": RUST_READ},
           rust_hang("prices-first", "taxes-first")),
    Victim("hang_rust", "mutex_self", {"selfish": RUST_MUTEX}, rust_unknown("selfish")),
    Victim("hang_rust", "mutex_owner_asleep",
           {f"waiter-{i}": dataclasses.replace(RUST_MUTEX, waiter_count=3) for i in (1, 2, 3)} | {"owner": Wait("SLEEP", NONE)},
           rust_unknown("waiter-1", "waiter-2", "waiter-3")),
    Victim("hang_rust", "rwlock_writer_asleep",
           {"reader": Wait("RWLOCK_READ", NOT_RECORDED, says="Rust"), "writer": Wait("RWLOCK_WRITE", NOT_RECORDED, says="Rust")},
           rust_unknown("reader")),
    Victim("hang_rust", "once_recursion", {"loader": Wait("ONCE")},
           (Finding("SELF_DEADLOCK", HANG, threads=("loader",), says=("once|one-time", "load")),)),
    # Who could send is recorded nowhere.
    Victim("hang_rust", "channel_self", {"selfish": Wait("CONDITION_VARIABLE|FUTEX|ATOMIC")}),
    # Which thread should receive is recorded nowhere. It is none of those that wait, if all of them do.
    Victim("hang_rust", "channel_full_self", {"selfish": ROOM_IN_CHANNEL}),
    Victim("hang_rust", "channels_both_full", {"orders": ROOM_IN_CHANNEL, "stock": ROOM_IN_CHANNEL}),
    Victim("hang_rust", "channels_both_full_joined", {"orders": ROOM_IN_CHANNEL, "stock": ROOM_IN_CHANNEL},
           (Finding("NOBODY_TO_WAKE", HANG, threads=("orders", "stock"), says=("room in a channel", "send_two")),)),
    Victim("hang_parking_lot", "locks",
           {"there": Wait("MUTEX", NOT_RECORDED, says="parking_lot"), "back": Wait("MUTEX", NOT_RECORDED),
            "consumer": Wait("CONDITION_VARIABLE", NONE)},
           (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=("there",), says=("parking_lot",)),)),
    Victim("hang_parking_lot", "locks_joined",
           {"there": Wait("MUTEX", NOT_RECORDED, says="parking_lot"), "back": Wait("MUTEX", NOT_RECORDED)},
           (Finding("OWNER_UNKNOWN", HANG, threads=("there",), says=("parking_lot", "no thread of the process runs")),)),
]

# Which of the readers asks again the lock does not record. Of channels of crossbeam it is as of those of Rust.
READ_AGAIN = {"reader": Wait("RWLOCK_READ", NOT_RECORDED, says="parking_lot"), "writer": Wait("RWLOCK_WRITE", NOT_RECORDED)}
RUST_VICTIMS += [
    Victim("hang_parking_lot", "read_again", READ_AGAIN, (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=("reader",)),)),
    Victim("hang_parking_lot", "read_again_joined", READ_AGAIN,
           (Finding("OWNER_UNKNOWN", HANG, threads=("reader",)), Finding("OWNER_UNKNOWN", HANG, threads=("writer",)))),
    Victim("hang_parking_lot", "channels_both_full", {"orders": ROOM_IN_CHANNEL, "stock": ROOM_IN_CHANNEL}),
    Victim("hang_parking_lot", "channels_both_full_joined", {"orders": ROOM_IN_CHANNEL, "stock": ROOM_IN_CHANNEL},
           (Finding("NOBODY_TO_WAKE", HANG, threads=("orders", "stock"), says=("room in a channel", "send_two")),)),
]

# A tid in shared memory may be another process's, of any PID namespace.
def in_shared_memory(says, *waiters, kind="MUTEX"):
    waits = {name: Wait(kind, OTHER_PROCESS, says=says) for name in waiters}
    return waits, (Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=waiters, says=(says,)),)


IN_CHILD = r"held by thread \d+ of hang_shared \(pid \d+\)"
OF_THIS_PROCESS = "of this process, or one with the same number in another PID namespace"
POSTED_BY_OTHERS = {name: Wait(kind, OTHER_PROCESS, says="processes share it, and whether one is left that will act is not known")
                    for name, kind in (("orders", "SEMAPHORE"), ("stock", "FUTEX"))}
SHARED_VICTIMS = [
    Victim("hang_shared", "held_by_child", *in_shared_memory(IN_CHILD, "waiter-1", "waiter-2"), then="beside_child"),
    Victim("hang_shared", "child_ended_with_it", *in_shared_memory("of another process, perhaps .* that has ended",
                                                                   "waiter-1", "waiter-2")),
    Victim("hang_shared", "private_kind_held_by_child", *in_shared_memory(IN_CHILD, "waiter-1", "waiter-2"), then="beside_child"),
    Victim("hang_shared", "rwlock_held_by_child", *in_shared_memory(IN_CHILD, "reader", kind="RWLOCK_READ"),
           then="beside_child"),
    Victim("hang_shared", "held_by_own_thread", *in_shared_memory(OF_THIS_PROCESS, "waiter-1", "waiter-2")),
    Victim("hang_shared", "circle", {name: Wait("MUTEX", OTHER_PROCESS, says=OF_THIS_PROCESS)
                                     for name in ("orders-first", "stock-first")},
           tuple(Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=(name,)) for name in ("orders-first", "stock-first"))),
    # Each of the two says who has what it waits for; no dump of one process shows the circle.
    Victim("hang_shared", "circle_of_processes", *in_shared_memory(IN_CHILD, "orders-first"), then="beside_child"),
    Victim("hang_shared", "circle_of_processes", *in_shared_memory(IN_CHILD, "stock-first"), then="in_child"),
    # Whether the process that was to post has ended no dump of the other tells.
    Victim("hang_shared", "poster_ended", POSTED_BY_OTHERS),
    Victim("hang_shared", "self_in_own_memory", {"selfish": Wait("MUTEX", KNOWN, by="selfish", place="own_locks")},
           (Finding("SELF_DEADLOCK", HANG, threads=("selfish",)),)),
]

def file_lock(owner, says, kind="OWNER_UNKNOWN", thread="locker", **more):
    return {"waits": {thread: Wait("FILE_LOCK", owner, fd="hang_file_lock", says=says)},
            "findings": (Finding(kind, SUSPICIOUS, threads=(thread,), says=(says,)),), **more}


HELD_BY_CHILD = r"; held by hang_file_lock \(pid \d+\)"
FILE_LOCK_VICTIMS = [
    Victim("hang_file_lock", "held_by_child", **file_lock(OTHER_PROCESS, HELD_BY_CHILD), then="beside_child", asks_lslocks=True),
    Victim("hang_file_lock", "held_without_agent", **file_lock(OTHER_PROCESS, r"; held by sleep \(pid \d+\)"),
           asks_lslocks=True),
    Victim("hang_file_lock", "held_by_readers", **file_lock(OTHER_PROCESS, HELD_BY_CHILD + ", and by 1 more to read")),
    Victim("hang_file_lock", "locker_ended",
           **file_lock(OTHER_PROCESS, r"; taken by process \d+, which has ended or closed it: a process that shares its open")),
    # Another thread of it may unlock.
    Victim("hang_file_lock", "held_by_itself",
           **file_lock(NOT_RECORDED, "; held by this process itself, through another open file")),
    Victim("hang_file_lock", "only_thread",
           **file_lock(NOT_RECORDED, "; held by this process itself, through another open file", kind="SELF_DEADLOCK",
                       thread="hang_file_lock")),
    Victim("hang_file_lock", "circle",
           **file_lock(OTHER_PROCESS, HELD_BY_CHILD + ", which waits for a file lock of this process", kind="DEADLOCK"),
           then="beside_child"),
    Victim("hang_file_lock", "circle", {"hang_file_lock": Wait("FILE_LOCK", OTHER_PROCESS)},
           (Finding("DEADLOCK", SUSPICIOUS, threads=("hang_file_lock",), says=("of this process",)),), then="in_child"),
    Victim("hang_file_lock", "open_file_lock",
           {"record-locker": Wait("FILE_LOCK", NOT_RECORDED, says="lock of an open file .* the kernel records no process"),
            "file-locker": Wait("FILE_LOCK", NOT_KNOWN, says="shows no process for a wait by F_OFD_SETLKW")},
           tuple(Finding("OWNER_UNKNOWN", SUSPICIOUS, threads=(name,)) for name in ("record-locker", "file-locker"))),
]

# Look like others that work, in one dump. Two tell: see diff_test.py.
CPU_VICTIMS = [
    Victim("hang_cpu", "spin_on_atomic", {"waiter": Wait("MUTEX", KNOWN, by="spinner", place="accounts_lock")}),
    Victim("hang_cpu", "livelock", {}),
]

VICTIMS = MUTEX_VICTIMS + SYNC_VICTIMS + KERNEL_VICTIMS + SHARED_VICTIMS + FILE_LOCK_VICTIMS + CPP_VICTIMS + RUST_VICTIMS + CPU_VICTIMS

PARKED = Wait("CONDITION_VARIABLE", NONE)

# Not hung: nothing worse than HARMLESS may be said of them.
IDLE = [
    Victim("idle", "condition_variable_pools", {"fetcher": PARKED, "parser": PARKED, "writer": PARKED}),
    Victim("idle", "joined_pool", {"fetcher": PARKED, "joiner": Wait("JOIN", KNOWN, by="fetcher")}),
    Victim("idle", "semaphore_pool", {"taker": Wait("SEMAPHORE", NONE, waiter_count=4)}),
    Victim("idle", "event_loops",
           {"epoller": Wait("EVENTS", NONE), "poller": Wait("EVENTS", NONE, fd="eventfd"), "selecter": Wait("EVENTS", NONE)}),
    Victim("idle", "server", {"accepter": Wait("ACCEPT", NONE, fd="tcp"), "receiver": Wait("READ", NONE, fd="tcp")}),
    Victim("idle", "signals", {"signal-waiter": Wait("SIGNAL", NONE)}),
    Victim("idle", "timers", {"timer": Wait("READ", NONE, fd="timerfd"), "sleeper-1": Wait("SLEEP", NONE),
                              "sleeper-2": Wait("SLEEP", NONE, timed=True),
                              "flusher": Wait("CONDITION_VARIABLE", NONE, timed=True)}),
    Victim("idle", "garbage_collection_pause", {"mutator": PARKED}),
    Victim("idle", "joined_computation", {"joiner": Wait("JOIN", KNOWN, by="worker")}),
    Victim("idle", "completion_waiters", {"waiter": Wait("FUTEX", waiter_count=3)}),
    Victim("idle", "busy", {}),
    Victim("idle", "busy", {}, then="throttled"),
    # In the kernel most of the time, to wait for the lock or to wake who does.
    Victim("idle", "hot_mutex", {"hitter": Wait("MUTEX|SYSTEM_CALL|")}),
    Victim("idle", "in_debugger", {}, then="stopped_by_debugger"),
    Victim("hang_shared", "poster_lives", POSTED_BY_OTHERS),
    Victim("hang_file_lock", "child_works", {"locker": Wait("FILE_LOCK", OTHER_PROCESS, says=HELD_BY_CHILD)},
           then="beside_child"),
    Victim("hang_cpp", "idle_pool", {f"worker-{i}": PARKED for i in range(4)}),
    *(Victim("hang_cpp", mode, {"parked-1": Wait("FUTURE"), "parked-2": Wait("FUTURE")})
      for mode in ("gate_and_sigwait", "gate_and_sleep")),
    Victim("hang_cpp", "gate_of_async_and_sigwait", {}),
    Victim("hang_cpp", "own_gates_and_sigwait", {"parked": Wait("FUTURE")}),
    Victim("hang_rust", "channel_slow_receiver", {"receiver": Wait("SLEEP", NONE)}),
    Victim("hang_rust", "idle_workers",
           {"worker-1": PARKED, "worker-2": PARKED, "receiver": Wait("CONDITION_VARIABLE|FUTEX|ATOMIC"),
            "parked": Wait("CONDITION_VARIABLE|FUTEX|ATOMIC")}),
]

# The main thread waits for all of them.
IDLE.append(dataclasses.replace(IDLE[-1], mode="idle_workers_joined"))
IDLE.append(Victim("hang_rust", "channel_slow_receiver_joined", {"receiver": Wait("SLEEP", NONE)}))
IDLE.append(Victim("hang_rust", "busy", {}))

# --- programs of other languages, by the locks that their runtimes know ---

RLOCK = Wait("MONITOR", KNOWN, lock_kind="threading.RLock")


def circle_of(waits):
    """What is said of a circle, {waiter: (owner, wait)}."""
    return ({waiter: dataclasses.replace(wait, by=owner) for waiter, (owner, wait) in waits.items()},
            (Finding("DEADLOCK", HANG, edges=tuple((waiter, owner) for waiter, (owner, _) in waits.items())),))


def behind_reader(wait):
    """Three wait for a lock whose owner reads from a connection."""
    waiters = [f"waiter-{i}" for i in range(3)]
    return ({name: dataclasses.replace(wait, by="owner", waiter_count=3) for name in waiters} | {"owner": Wait("READ|EVENTS", NONE)},
            (Finding("OWNER_BLOCKED", SUSPICIOUS, threads=("owner", *waiters)),))


MONITOR = Wait("MONITOR", KNOWN, lock_kind="java.lang.Object")
REENTRANT = Wait("MONITOR", KNOWN, lock_kind="java.util.concurrent.locks.ReentrantLock")

READ_WRITE = Wait("MONITOR", KNOWN, lock_kind="java.util.concurrent.locks.ReentrantReadWriteLock")


def blocked_loop(program, mode, loop, place, waits, severity=SUSPICIOUS):
    """A thread that should turn a loop waits in `place`, inside of a callback."""
    says = (f"the event loop of {loop} is blocked", rf"in \S*\b{place}:", waits)
    return Victim(program, mode, {}, (Finding("STARVED_POOL", severity, says=says),))


MANAGED_VICTIMS = [
    *(Victim("hang_python", f"rlock_cycle_{count}",
             *circle_of({waiter: (owner, RLOCK) for waiter, owner in cycle(count)})) for count in (2, 5)),
    Victim("hang_python", "rlock_owner_reads", *behind_reader(RLOCK)),
    # Python waits for the end of a thread on a lock that this one releases: nothing says whose it is.
    Victim("hang_python", "rlock_and_join", {"worker": dataclasses.replace(RLOCK, by="stopper"), "stopper": Wait("SEMAPHORE", NONE)}),
    # The child has one thread.
    Victim("hang_python", "lock_after_fork", {"python3": Wait("MUTEX", NOT_RECORDED)},
           (Finding("OWNER_UNKNOWN", HANG, says=("who has a lock of Python's is not read",)),), then="in_child"),
    *(Victim("hang_python", mode, {},
             (Finding("STARVED_POOL", SUSPICIOUS, says=(f"{workers} of Python's ThreadPoolExecutor", rf"in \S*\b{place} at hang_python.py:",
                                                        "none is left to run another task")),))
      for mode, workers, place in (("pool_nested", "all 2 workers", "outer"), ("worker_of_one", "the only worker", "ask"))),
    blocked_loop("hang_python", "loop_reads", "asyncio", "read_answer at hang_python.py", "waits to read from fd"),
    blocked_loop("hang_python", "loop_awaits_itself", "asyncio", "handle at hang_python.py", "waits for semaphore",
                 severity=HANG),
    # What is to bring the work or the news is recorded nowhere.
    Victim("hang_python", "tasks_of_processes", {"joiner": Wait("SEMAPHORE", OTHER_PROCESS)}),
    Victim("hang_python", "queue_join", {"joiner": Wait("SEMAPHORE", NONE)}),
    Victim("hang_python", "tls_silent", {"connector": Wait("READ", NONE, fd="unix|socket")}),
    Victim("hang_python", "sqlite_busy", {"writer": Wait("SLEEP", NONE, timed=True)}),
    Victim("hang_python", "condition_lost", {"waiter": Wait("SEMAPHORE", NONE)}),
    Victim("HangJava", "monitor_cycle", *circle_of({waiter: (owner, MONITOR) for waiter, owner in cycle(3)})),
    Victim("HangJava", "monitor_and_lock",
           *circle_of({"monitor-first": ("lock-first", REENTRANT), "lock-first": ("monitor-first", MONITOR)})),
    Victim("HangJava", "owner_reads", *behind_reader(MONITOR)),
    Victim("HangJava", "read_then_write", {"upgrader": dataclasses.replace(READ_WRITE, by="upgrader")},
           (Finding("SELF_DEADLOCK", HANG, threads=("upgrader",)),)),
    *(Victim("HangJava", mode, {},
             (Finding("STARVED_POOL", SUSPICIOUS, says=(f"{workers} of Java's ThreadPoolExecutor", "HangJava.java:",
                                                        "none is left to run another task")),))
      for mode, workers in (("pool_nested", "all 2 workers"), ("worker_of_one", "the only worker"))),
    Victim("HangJava", "class_initialization", {},
           (Finding("DEADLOCK", HANG, edges=(("prices-first", "taxes-first"), ("taxes-first", "prices-first")),
                    says=("inferred from the stacks", r"Prices.<clinit> at HangJava.java:\d+ waits until")),)),
    Victim("HangJava", "class_initialization_of_3", {},
           (Finding("DEADLOCK", HANG, threads=("orders-first", "stock-first", "fees-first"),
                    says=("3 threads wait in initializers of classes", "Stock.<clinit>")),)),
    # Who has taken the connections, and who could give one back, is recorded nowhere.
    Victim("HangJava", "connection_pool", {f"query-{i}": Wait("CONDITION_VARIABLE") for i in range(2)}),
]

NODE_VICTIMS = [
    blocked_loop("hang_node", "exec_sync", "Node.js", "runTool at hang_node.js", "waits for events"),
    blocked_loop("hang_node", "fifo_read", "Node.js", "readOrders at hang_node.js", "waits to read from fd"),
    blocked_loop("hang_node", "atomics_main", "Node.js", "waitFor at hang_node.js", "waits on condition variable"),
    # One dump does not tell what computes from what never ends.
    Victim("hang_node", "microtasks", {}),
    Victim("hang_node", "expression", {}),
]
MANAGED_VICTIMS += NODE_VICTIMS

MANAGED_IDLE = [
    *(Victim("hang_node", mode, {}) for mode in ("idle_server", "awaits_child", "worker_waits", "commands")),
    *(Victim("hang_python", mode, {}) for mode in ("pool_of_loop", "pool_of_pools", "pool_of_processes", "idle_loop")),
    *(Victim("HangJava", mode, {}) for mode in ("slow_class", "pool_of_pools", "worker_of_common_pool", "many_readers")),
    Victim("hang_python", "rlock_timed_waiters", {"owner": Wait("SLEEP", NONE), "patient": Wait("MONITOR", NONE)}),
    Victim("hang_python", "idle_pool", {}),
    Victim("hang_python", "idle_queue", {f"worker-{i}": Wait("SEMAPHORE", NONE) for i in range(3)}),
    Victim("hang_python", "condition_of_rlock", {f"waiter-{i}": Wait("SEMAPHORE", NONE) for i in range(3)}),
    Victim("hang_python", "events", {"waiter": Wait("SEMAPHORE", NONE), "reader": Wait("READ", NONE, fd="unix|socket")}),
    Victim("HangJava", "idle_pool", {}),
    Victim("HangJava", "conditions", {"of-lock": Wait("CONDITION_VARIABLE"), "of-monitor": Wait("CONDITION_VARIABLE")}),
    Victim("HangJava", "timed_lock", {"patient": Wait("MONITOR", NONE)}),
]

# Rows rest on functions of a runtime's library. Each stands with whether it hangs.
RESTS_ON_FUNCTIONS = [(victim, is_hung) for victims, is_hung in ((MANAGED_VICTIMS, True), (MANAGED_IDLE, False)) for victim in victims
                      if victim.program == "hang_node" or "class" in victim.mode or "read" in victim.mode
                      or victim.mode.startswith(("pool_", "worker_", "loop_", "idle_loop"))]
