#!/usr/bin/env python3
"""Writes the fixed corpora of ring_reader_fuzzer and registration_fuzzer beside this file."""
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER_BYTES, SLOT_BYTES, SLOTS = 320 + 1024, 2048, 70
NO_SLOT = 0xFFFFFFFF
THREAD, STATUS = 1, 2


def write(folder, name, content):
    path = os.path.join(HERE, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as file:
        file.write(content)


# --- Shared memory: the header as ring_abi.h has it, then the slots. ---


def ring(slots, ready, dropped=0):
    fixed = struct.pack("<QIIIII", 0x31676E5264636B53, 1, 8192, SLOT_BYTES, SLOTS, SLOTS // 4).ljust(64, b"\0")
    command = struct.pack("<IIQII", 1, 1, 1 << 60, 256 << 10, 0).ljust(64, b"\0")
    helper = struct.pack("<IIIII", 1, 1, 3, 1, 1).ljust(64, b"\0")
    doorbell = struct.pack("<II", 5, 0).ljust(64, b"\0")
    bits = bytearray(512)
    for slot in ready:
        bits[slot // 8] |= 1 << slot % 8
    header = fixed + command + helper + doorbell + struct.pack("<8Q", *[dropped] * 8) + bytes(512) + bytes(bits)
    assert len(header) == HEADER_BYTES
    return header + b"".join(slot.ljust(SLOT_BYTES, b"\0") for slot in slots)


def thread(next_slot=NO_SLOT, kind=THREAD, words=0, payload=(), tid=7, name=b"worker", outer_words=0):
    record = struct.pack("<IIIIIIQQQ16s", next_slot, kind, 1, tid, 0, 900, 10**9, 10**6, 0x7F0000001000, name)
    record += struct.pack("<17Q", *range(0x7F0000000000, 0x7F0000000000 + 17 * 8, 8))
    record += struct.pack("<QII", 0x7FFF00000000, words, len(payload))
    record += struct.pack("<QII", 0x7FFE00000000, outer_words, 0)
    assert len(record) == 232
    return record + b"".join(struct.pack("<Q", word) for word in payload)


def statuses(count, status=5, entries=36):
    record = struct.pack("<IIII", NO_SLOT, STATUS, 1, count)
    for tid in range(entries):
        record += struct.pack("<IBcH16s32s", tid, status, b"S", 0, b"blocked", b"futex_wait_queue")
    return record


def continuation(next_slot, words):
    return struct.pack("<II", next_slot, 0) + b"".join(struct.pack("<Q", word) for word in words)


def write_rings():
    full = [0xFFFFFFFFFFFFFFFF] + list(range(64))
    rings = {
        "empty": ring([], []),
        "two_stacks": ring([thread(words=70, payload=[0b11, 1, 2, 0, 0b1, 3], outer_words=10)], [0]),
        "second_stack_is_missing": ring([thread(words=1, payload=[0b1, 1], outer_words=20000)], [0]),
        "two_stacks": ring([thread(words=70, payload=[0b11, 1, 2, 0, 0b1, 3], outer_words=10)], [0]),
        "second_stack_is_missing": ring([thread(words=1, payload=[0b1, 1], outer_words=20000)], [0]),
        "one_thread": ring([thread(words=100, payload=[0b1011, 1, 2, 3, 0])], [0]),
        "long_stack": ring(
            [
                thread(next_slot=1, words=64 * 7, payload=(full * 4)[:229]),
                continuation(2, (full * 8)[229:484]),
                continuation(NO_SLOT, (full * 8)[484:520]),
            ],
            [0],
        ),
        "statuses": ring([statuses(36), statuses(1), statuses(37), statuses(3, status=200)], range(4)),
        "cycle": ring([thread(next_slot=1), continuation(0, [])], [0, 1]),
        "out_of_range": ring([thread(next_slot=SLOTS), thread(next_slot=0x7FFFFFFF)], [0, 1]),
        "mask_beyond_the_end": ring([thread(words=3, payload=[0b1001, 1, 2])], [0]),
        "words_missing": ring([thread(words=64 * 5, payload=[0xFFFFFFFFFFFFFFFF] * 229)], [0]),
        "unknown_kind": ring([thread(kind=9), thread(kind=0)], [0, 1]),
        "sizes_at_the_edge": ring(
            [thread(words=count) for count in (0x8000, 0x8001, 0xFFFFFFFF, 0x7FFFFFFF, 64, 65)], range(6)
        ),
        "all_share_one_chain": ring([thread(next_slot=(slot + 1) % SLOTS) for slot in range(SLOTS)], range(SLOTS)),
        "ready_beyond_the_last_slot": ring([thread()], range(60, 4096)),
        "bad_text": ring([thread(name=b"\xff" * 16), thread(name=b"\xc3\x28\xe0\x80")], [0, 1]),
    }
    for name, content in rings.items():
        write("ring_reader_fuzzer_corpus", name, content + b"\0")
    for name in ("one_thread", "long_stack", "statuses"):
        write("ring_reader_fuzzer_corpus", name + "_scribbled", rings[name] + b"\1")


# --- Messages: records of registration_fuzzer.cc, "operation, fds, size, bytes". ---

HELLO, FILE, DUMP_REQUEST, NAME = 1, 5, 7, 8
SEND, SEND_AS_IS, CONNECT, CLOSE, RING, ANSWER = range(6)
# Kinds of fds, as registration_fuzzer.cc numbers them.
MEM, MAPS, PROC, PIPE, SOCKET, MEMFD, FIFO, ELF, FOLDER, CHARACTER_DEVICE, PROC_OTHER = range(1, 12)


def operation(code, content=b"", fds=()):
    return struct.pack("<BB", code, len(fds)) + bytes(fds) + struct.pack("<H", len(content)) + content


def message(kind, body, size=None):
    return struct.pack("<II", kind, size if size is not None else 8 + len(body)) + body


def hello(abi=1, flags=7, pid=42, ticks=1000, signal=34, exe=b"/usr/bin/sleep"):
    body = struct.pack("<IIiiQiI", abi, flags, pid, 1000, ticks, signal, 0)
    body += struct.pack("<64s64s256s1024s", b"host", b"name", b"sleep", exe)
    assert len(body) + 8 == 1448
    return message(HELLO, body)


def file_answer(request_id, error=0):
    return message(FILE, struct.pack("<Ii", request_id, error))


def write_registrations():
    good = operation(SEND, hello(), [MEM, MAPS, PROC])
    finish = operation(RING, struct.pack("<HQ", 140, 1)) + operation(RING, struct.pack("<HQ", 132, 1 | 3 << 32))
    cases = {
        "good": good + finish,
        "files_answered": good + operation(ANSWER, bytes([0, ELF] * 8)) + finish,
        "files_of_wrong_kinds": good + operation(ANSWER, bytes([0, PIPE, 0, SOCKET, 0, MEMFD, 0, FIFO, 0, FOLDER, 2, 0])) + finish,
        "no_fds": operation(SEND, hello(flags=0)) + finish,
        "fds_missing": operation(SEND, hello(), [MEM]),
        "wrong_fds": operation(SEND, hello(), [PIPE, SOCKET, MEMFD])
        + operation(CONNECT)
        + operation(SEND, hello(), [FIFO, FIFO, FOLDER])
        + operation(CONNECT)
        + operation(SEND, hello(), [PROC, PROC, MEM]),
        "swapped": operation(SEND, hello(), [MAPS, MEM, PROC]) + finish,
        "not_a_process_folder": operation(SEND, hello(), [MEM, MAPS, PROC_OTHER]) + finish,
        "wrong_version": operation(SEND, hello(abi=2), [MEM, MAPS, PROC]),
        "short": operation(SEND, hello()[:100]) + operation(CONNECT) + operation(SEND_AS_IS, b"\1\0\0"),
        "size_that_lies": operation(SEND_AS_IS, message(HELLO, b"x" * 100, size=9999)),
        "twice": good + good + operation(SEND, message(NAME, b"\xff" * 64)) + finish,
        "unasked": good
        + operation(SEND, file_answer(0), [ELF])
        + operation(SEND, file_answer(1), [ELF, ELF, PIPE])
        + operation(SEND, file_answer(0xFFFFFFFF, -2))
        + finish,
        "dump_requests": good + operation(SEND, message(DUMP_REQUEST, b"")) * 20 + finish,
        "unknown_type": good + operation(SEND, message(99, b"later")) + finish,
        "closed": good + operation(CLOSE),
        "same_id": good + operation(CONNECT) + good + finish,
        "numbers_at_the_edge": operation(SEND, hello(pid=-1, ticks=2**64 - 1, signal=-5, exe=b"\xff" * 1024), [MEM, MAPS, PROC])
        + finish,
    }
    for name, content in cases.items():
        write("registration_fuzzer_corpus", name, content)


write_rings()
write_registrations()
