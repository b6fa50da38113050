"""A daemon that takes crashes and does with them what a test says. It knows ring_abi.h and wire.h, and nothing of the daemon.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import queue
import socket
import struct
import threading
import time

HEADER_BYTES = 8192
SLOT_BYTES = 2048
NO_SLOT = 0xFFFFFFFF
RING_MAGIC = 0x31676E5264636B53
COMMAND_SEQ, BEGUN_SEQ, LISTED, DONE_SEQ, CRASH_PHASE, TENTATIVE, DROPPED, FREE, READY = (
    64, 132, 136, 140, 256, 288, 320, 384, 384 + 512)
CANCEL_SEQ, FAILURE, SIGTERM_COUNT_AVMA, HEARTBEATS = 84, 148, 264, 4096
COMMAND_DUMP, COMMAND_SAMPLE = 1, 2
MSG_HELLO, MSG_WELCOME, MSG_KICK, MSG_CRASH, MSG_DESCRIBE_FDS, MSG_FD_NAMES, MSG_DESCRIBE_EPOLLS = 1, 2, 6, 9, 10, 11, 13
MSG_BELL = 20
TAKEN, STORED = 1, 2
HANDLED, SENT, AGENT_FAULT, INIT = 1, 2, 4, 8
TRUNCATED, BY_HELPER, FOREIGN_SP, NO_STACK, BOTH_ENDS = 1, 2, 4, 8, 16
RECORD_THREAD, RECORD_STATUS, RECORD_CRASH, RECORD_WAIT = 1, 2, 3, 4
RSP, RIP = 7, 16

libc = ctypes.CDLL(None, use_errno=True)
# The agent changes bits of the same bytes meanwhile.
libatomic = ctypes.CDLL("libatomic.so.1")
fetch_and, fetch_or = getattr(libatomic, "__atomic_fetch_and_1"), getattr(libatomic, "__atomic_fetch_or_1")
SEQ_CST = 5


def text(field):
    return field.split(b"\0", 1)[0].decode()


class Crash:
    """A CRASH record, from the bytes of its slots in the order of the chain."""

    FORMAT = "<II2QQIIiiQiiQQQQ512s512s"

    def __init__(self, slots):
        fields = struct.unpack_from(self.FORMAT, slots[0])
        (_, kind, id0, id1, self.time_ns, self.flags, self.tid, self.signal, self.code, self.address, self.sender_pid,
         self.sender_uid, self.trap_error, self.trap_number, self.stack_start, self.stack_end, abort_message,
         exception_type) = fields
        assert kind == RECORD_CRASH, kind
        self.id = id0, id1
        self.abort_message = text(abort_message)
        self.exception_type = text(exception_type)
        self.thread = Thread(slots[1:]) if len(slots) > 1 else None


class Call:
    """A system call that a thread is in; `arguments` holds those that are known, by place."""

    FORMAT = "<II6Q"

    def __init__(self, number, known, arguments):
        assert known >> 31 or known == 0, hex(known)
        self.number = number
        self.arguments = {i: value for i, value in enumerate(arguments) if known >> i & 1}
        assert not any(value for i, value in enumerate(arguments) if not known >> i & 1), "an argument left unsaid"

    @staticmethod
    def of(data, at):
        number, known, *arguments = struct.unpack_from(Call.FORMAT, data, at)
        return Call(number, known, arguments) if known else None

    def __eq__(self, other):
        return isinstance(other, Call) and (self.number, self.arguments) == (other.number, other.arguments)

    def __repr__(self):
        return f"{self.number}({', '.join(f'{i}: {value:#x}' for i, value in self.arguments.items())})"


def waits(slots):
    """(tid, rsp, rip, call) of each entry of a WAIT record."""
    kind, _, count = struct.unpack_from("<III", slots[0], 4)
    assert kind == RECORD_WAIT and 0 < count <= 25 and len(slots) == 1
    entries = []
    for at in range(16, 16 + count * 80, 80):
        tid, _, rsp, rip = struct.unpack_from("<IIQQ", slots[0], at)
        entries.append((tid, rsp, rip, Call.of(slots[0], at + 24)))
    return entries


class FdName:
    FORMAT = "<iiI16ii160s"

    def __init__(self, data, at):
        fields = struct.unpack_from(self.FORMAT, data, at)
        self.fd, self.error, self.watched_count = fields[:3]
        self.watched = list(fields[3 : 3 + min(16, self.watched_count)])
        self.other_end = fields[19]
        self.name = text(fields[20])


class Thread:
    FORMAT = "<IIIIIIQQQ16s17QQIIQIIII6Q"

    def __init__(self, slots):
        fields = struct.unpack_from(self.FORMAT, slots[0])
        assert fields[1] == RECORD_THREAD, fields[1]
        self.seq, self.tid, self.flags = fields[2:5]
        self.name = text(fields[9])
        self.registers = fields[10:27]
        self.stack_base, self.stack_words, self.payload_words, self.outer_base, self.outer_words = fields[27:32]
        self.call = Call.of(slots[0], 232)
        size = struct.calcsize(self.FORMAT)
        payload = slots[0][size:] + b"".join(slot[8:] for slot in slots[1:])
        words = struct.unpack_from(f"<{self.payload_words}Q", payload)
        at = 0
        self.memory = {}
        for base, count in ((self.stack_base, self.stack_words), (self.outer_base, self.outer_words)):
            for first in range(0, count, 64):
                mask = words[at]
                at += 1
                for bit in range(min(64, count - first)):
                    if mask >> bit & 1:
                        self.memory[base + 8 * (first + bit)] = words[at]
                        at += 1
        assert at == self.payload_words, (at, self.payload_words)


class Ring:
    def __init__(self, size_bytes=1 << 20):
        slots = (size_bytes - HEADER_BYTES) // SLOT_BYTES
        self.size_bytes = HEADER_BYTES + slots * SLOT_BYTES
        self.fd = os.memfd_create("stackd-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.posix_fallocate(self.fd, 0, self.size_bytes)
        fcntl.fcntl(self.fd, 1033, 2 | 4)  # F_ADD_SEALS: F_SEAL_SHRINK, F_SEAL_GROW
        self.memory = mmap.mmap(self.fd, self.size_bytes)
        struct.pack_into("<QIIIII", self.memory, 0, RING_MAGIC, 1, HEADER_BYTES, SLOT_BYTES, slots, slots // 4)
        self.slots = slots
        for slot in range(slots):
            self.memory[FREE + slot // 8] |= 1 << slot % 8
        self.word = lambda at: ctypes.c_uint32.from_buffer(self.memory, at)
        self.byte = lambda at: ctypes.byref(ctypes.c_uint8.from_buffer(self.memory, at))

    def load(self, at):
        return self.word(at).value

    def store(self, at, value):
        self.word(at).value = value

    def wake(self, at):
        libc.syscall(202, ctypes.byref(self.word(at)), 1, 1, None, None, 0)

    def free_slots(self, first=0):
        return sum(self.memory[FREE + slot // 8] >> slot % 8 & 1 for slot in range(first, self.slots))

    def chain(self, slot):
        slots = []
        while slot != NO_SLOT:
            assert slot < self.slots and len(slots) <= self.slots, "no chain"
            at = HEADER_BYTES + slot * SLOT_BYTES
            slots.append(bytes(self.memory[at : at + SLOT_BYTES]))
            slot = struct.unpack_from("<I", slots[-1])[0]
        return slots

    def ready(self):
        """First slots of the records that are ready; they are no longer."""
        taken = []
        for slot in range(self.slots):
            if self.memory[READY + slot // 8] >> slot % 8 & 1:
                fetch_and(self.byte(READY + slot // 8), ctypes.c_uint8(~(1 << slot % 8)), SEQ_CST)
                taken.append(slot)
        return taken

    def take(self):
        """(kind, slots) of each record that is ready; frees them."""
        records = []
        for slot in self.ready():
            slots = self.chain(slot)
            records.append((struct.unpack_from("<I", slots[0], 4)[0], slots))
            for one in self.chain_numbers(slot):
                fetch_or(self.byte(FREE + one // 8), ctypes.c_uint8(1 << one % 8), SEQ_CST)
        return records

    def chain_numbers(self, slot):
        numbers = []
        while slot != NO_SLOT:
            numbers.append(slot)
            slot = self.load(HEADER_BYTES + slot * SLOT_BYTES)
        return numbers

    def tentative(self):
        """CRASH records that count only if the process ends."""
        return [Crash(self.chain(first - 1)) for first in
                (self.load(TENTATIVE + 4 * i) for i in range(8)) if first != 0]


class FakeDaemon:
    """Takes one process at a time. `delay_s` is how long each answer to a crash takes. `dump` asks for the other threads, `die`
    closes the connection instead of an answer, `welcome` answers at all. `lie` gives an fd and a number of bytes that are passed
    instead of those of the ring. `wakes` has the agent's thread started."""

    def __init__(self, folder, take=True, store=True, delay_s=0, dump=False, spool=False, die=False, welcome=True, ring_bytes=1 << 20,
                 lie=None, wakes=True):
        self.folder = folder
        self.take = take
        self.store = store
        self.delay_s = delay_s
        self.dump = dump
        self.spool = spool
        self.die = die
        self.welcome = welcome
        self.ring_bytes = ring_bytes
        self.lie = lie
        self.wakes = wakes
        self.crashes = []
        self.threads = {}
        self.statuses = {}
        self.waits = {}
        self.fd_names = queue.Queue()
        self.connection = None
        self.seq = 0
        self.tentative = []
        self.listed = None
        self.messages = 0
        self.ring = None
        self.spool_path = os.path.join(folder, "spool", "0" * 32 + ".crash")
        self.connected = threading.Event()
        self.over = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(os.path.join(folder, "stackd.sock"))
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
        if self.listener.fileno() < 0:
            return
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.listener.close()

    def run(self):
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        with connection:
            self.serve(connection)
        self.over.set()

    def serve(self, connection):
        message, fds, _, _ = socket.recv_fds(connection, 4096, 4)
        for fd in fds:
            os.close(fd)
        if not message:
            return
        assert struct.unpack_from("<I", message)[0] == MSG_HELLO
        if not self.welcome:
            connection.recv(4096)
            return
        self.ring = Ring(self.ring_bytes)
        ring_fd, claimed_bytes = (self.ring.fd, self.ring.size_bytes) if self.lie is None else self.lie()
        to_pass = [ring_fd]
        if self.spool:
            os.makedirs(os.path.dirname(self.spool_path), mode=0o700, exist_ok=True)
            to_pass.append(os.open(self.spool_path, os.O_CREAT | os.O_RDWR, 0o600))
        try:
            socket.send_fds(connection, [struct.pack("<IIII", MSG_WELCOME, 16, claimed_bytes, 0)], to_pass)
        except BrokenPipeError:
            return
        self.connection = connection
        self.connected.set()
        while True:
            try:
                message, fds, _, _ = socket.recv_fds(connection, 16384, 1)
            except ConnectionResetError:
                message, fds = b"", []
            if not message:
                break
            if struct.unpack_from("<I", message)[0] == MSG_BELL:
                with socket.socket(fileno=fds[0]) as bell:
                    self.ring_bell(bell)
            if struct.unpack_from("<I", message)[0] == MSG_CRASH:
                self.messages += 1
                if self.die:
                    break
                self.on_crash(connection)
            if struct.unpack_from("<I", message)[0] == MSG_FD_NAMES:
                self.fd_names.put(message)
        connection.close()
        self.tentative = self.ring.tentative()
        self.collect()

    def ring_bell(self, bell):
        """At once: most tests are about what the agent's thread does."""
        # It closes its end when that has started by itself.
        with contextlib.suppress(ConnectionRefusedError):
            if self.wakes:
                bell.send(b"\0")

    def collect(self):
        for kind, slots in self.ring.take():
            if kind == RECORD_CRASH:
                self.crashes.append(Crash(slots))
            elif kind == RECORD_THREAD:
                thread = Thread(slots)
                self.threads[thread.tid] = thread
            elif kind == RECORD_STATUS:
                count = struct.unpack_from("<I", slots[0], 12)[0]
                for at in range(16, 16 + count * 56, 56):
                    tid, status = struct.unpack_from("<IB", slots[0], at)
                    self.statuses[tid] = status
            elif kind == RECORD_WAIT:
                self.waits.update({entry[0]: entry for entry in waits(slots)})

    def begin(self, command, timeout_s=5.0, only_tid=0):
        self.threads, self.statuses, self.waits = {}, {}, {}
        self.seq += 1
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        struct.pack_into("<IQIII", self.ring.memory, COMMAND_SEQ + 4, command, deadline_ns, 65536, 0, only_tid)
        self.ring.store(COMMAND_SEQ, self.seq)
        self.connection.send(struct.pack("<II", MSG_KICK, 8))
        return deadline_ns

    def run_command(self, command, timeout_s=5.0, only_tid=0):
        """Runs a command to its end; then threads, statuses, waits and `listed` are those that it gave. The reason if the
        agent could not run it: an errno, or 0."""
        deadline_ns = self.begin(command, timeout_s, only_tid)
        while self.ring.load(DONE_SEQ) != self.seq:
            assert time.monotonic_ns() < deadline_ns + 1_000_000_000, "the command is never done"
            self.collect()
            time.sleep(0.0005)
        self.collect()
        failure = -struct.unpack_from("<i", self.ring.memory, FAILURE)[0]
        assert failure or self.ring.load(BEGUN_SEQ) == self.seq
        self.listed = self.ring.load(LISTED)
        return failure

    def describe_fds(self, *fds, question=MSG_DESCRIBE_FDS):
        self.connection.send(struct.pack("<IIII32i", question, 144, 77, len(fds), *fds, *[0] * (32 - len(fds))))
        message = self.fd_names.get(timeout=10)
        type_number, size_bytes, request_id, count = struct.unpack_from("<IIII", message)
        assert (type_number, size_bytes, request_id, count) == (MSG_FD_NAMES, len(message), 77, len(fds))
        return [FdName(message, 16 + 240 * i) for i in range(count)]

    def heartbeats(self):
        """(name, beats, limit_ms, tid) by cell, of those that are registered."""
        cells = {}
        for i in range(64):
            beats, limit_ms, tid, name = struct.unpack_from("<QII48s", self.ring.memory, HEARTBEATS + 64 * i)
            if limit_ms != 0:
                cells[i] = (text(name), beats, limit_ms, tid)
        return cells

    def on_crash(self, connection):
        if not self.take:
            return
        time.sleep(self.delay_s)
        self.collect()
        self.advance(TAKEN)
        if self.dump:
            deadline_ns = time.monotonic_ns() + 1_000_000_000
            struct.pack_into("<IQI", self.ring.memory, COMMAND_SEQ + 4, 1, deadline_ns, 65536)
            self.ring.store(COMMAND_SEQ, 1)
            connection.send(struct.pack("<II", MSG_KICK, 8))
            while self.ring.load(DONE_SEQ) != 1 and time.monotonic_ns() < deadline_ns:
                time.sleep(0.0005)
            self.listed = self.ring.load(LISTED)
            self.collect()
        if self.store:
            time.sleep(self.delay_s)
            self.advance(STORED)

    def advance(self, phase):
        self.ring.store(CRASH_PHASE, phase)
        self.ring.wake(CRASH_PHASE)
