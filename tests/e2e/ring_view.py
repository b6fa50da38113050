"""Looks into the shared memory between a daemon and its agents, through the daemon's own fds. It sees how far a dump has got,
and which bytes are there."""

import mmap
import os
import struct
import time

# Offsets in stackd_ring_header (agent/include/stackd/ring_abi.h).
RING_MAGIC = 0x31676E5264636B53
SLOT_COUNT, COMMAND_SEQ, BEGUN_SEQ, DONE_SEQ, CRASH_PHASE, READY = 20, 64, 132, 140, 256, 896
CRASH_TAKEN, CRASH_STORED = 1, 2


class Ring:

    def __init__(self, memory):
        self.memory = memory

    def number(self, offset):
        return struct.unpack_from("<I", self.memory, offset)[0]

    def in_a_dump(self):
        """The threads were listed and the stack of one at least is there to be read, but not all have answered."""
        begun = self.number(BEGUN_SEQ)
        if begun == 0 or begun != self.number(COMMAND_SEQ) or begun == self.number(DONE_SEQ):
            return False
        slots = self.number(SLOT_COUNT)
        return any(self.memory[READY:READY + 8 * ((slots + 63) // 64)])

    def await_dump_under_way(self, is_over, limit_s=20):
        """Whether the dump that was asked for was seen under way. False: is_over() first, while another process had the CPU."""
        end = time.monotonic() + limit_s
        while not self.in_a_dump():
            if is_over():
                return False
            if time.monotonic() > end:
                raise AssertionError("no dump was seen under way in the ring")
        return True


def memfds_of(pid):
    """Maps every memfd that a process holds."""
    memories = []
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        try:
            if not os.readlink(path).startswith("/memfd:"):
                continue
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            memories.append(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        finally:
            os.close(fd)
    return memories


def rings_of(daemon):
    return [Ring(memory) for memory in memfds_of(daemon.process.pid)
            if len(memory) > 8192 and struct.unpack_from("<Q", memory)[0] == RING_MAGIC]
