#!/usr/bin/env python3
"""Writes the fixed corpora of all fuzzers but cfi_fuzzer, code_fuzzer and elf_fuzzer beside this file."""
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER_BYTES, SLOT_BYTES, SLOTS = 384 + 1024, 2048, 70
NO_SLOT = 0xFFFFFFFF
THREAD, STATUS, CRASH_RECORD, WAIT = 1, 2, 3, 4


def write(folder, name, content):
    path = os.path.join(HERE, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as file:
        file.write(content)


# --- Shared memory: the header as ring_abi.h has it, then the slots. ---


def ring(slots, ready, dropped=0, tentative=()):
    fixed = struct.pack("<QIIIII", 0x31676E5264636B53, 1, 8192, SLOT_BYTES, SLOTS, SLOTS // 4).ljust(64, b"\0")
    command = struct.pack("<IIQII", 1, 1, 1 << 60, 256 << 10, 0).ljust(64, b"\0")
    helper = struct.pack("<IIIII", 1, 1, 3, 1, 1).ljust(64, b"\0")
    doorbell = struct.pack("<II", 5, 0).ljust(64, b"\0")
    crash = struct.pack("<I", 0).ljust(32, b"\0") + struct.pack("<8I", *(list(tentative) + [0] * 8)[:8])
    bits = bytearray(512)
    for slot in ready:
        bits[slot // 8] |= 1 << slot % 8
    header = fixed + command + helper + doorbell + crash + struct.pack("<8Q", *[dropped] * 8) + bytes(512) + bytes(bits)
    assert len(header) == HEADER_BYTES
    assert all(len(slot) <= SLOT_BYTES for slot in slots)
    return header + b"".join(slot.ljust(SLOT_BYTES, b"\0") for slot in slots)


IN_A_CALL = 1 << 31
FUTEX, POLL, READ, SELECT = 202, 7, 0, 23


def call(number=0, known=0, arguments=()):
    return struct.pack("<II6Q", number, known, *(list(arguments) + [0] * 6)[:6])


def thread(next_slot=NO_SLOT, kind=THREAD, words=0, payload=(), tid=7, name=b"worker", outer_words=0, syscall=call(),
           managed=b"", managed_words=None):
    record = struct.pack("<IIIIIIQQQ16s", next_slot, kind, 1, tid, 0, 900, 10**9, 10**6, 0x7F0000001000, name)
    record += struct.pack("<17Q", *range(0x7F0000000000, 0x7F0000000000 + 17 * 8, 8))
    record += struct.pack("<QII", 0x7FFF00000000, words, len(payload))
    record += struct.pack("<QII", 0x7FFE00000000, outer_words, len(managed) // 8 if managed_words is None else managed_words)
    record += syscall
    assert len(record) == 288
    return record + b"".join(struct.pack("<Q", word) for word in payload) + managed


def runtime(runtime=1, flags=0, status=0, size_bytes=32):
    return struct.pack("<HHIIiQQ", 1, flags, size_bytes, runtime, status, 0x030B07F0, 0x7F0000001000)


def frame(key=1, flags=0, anchor=0, size_bytes=32):
    return struct.pack("<HHIQQq", 2, flags, size_bytes, anchor, key, 12)


def symbol(key=1, function=b"work", file=b"/srv/app.py", table=b"\xc8\x01", size_bytes=None, function_bytes=None):
    texts = function + file + table
    texts += bytes(-len(texts) % 8)
    return struct.pack("<HHIQIHHII", 3, 0, 32 + len(texts) if size_bytes is None else size_bytes, key, 7,
                       len(function) if function_bytes is None else function_bytes, len(file), len(table), 0) + texts


def statuses(count, status=5, entries=36):
    record = struct.pack("<IIII", NO_SLOT, STATUS, 1, count)
    for tid in range(entries):
        record += struct.pack("<IBcH16s32s", tid, status, b"S", 0, b"blocked", b"futex_wait_queue")
    return record


def waits(count, calls, seq=1):
    record = struct.pack("<IIII", NO_SLOT, WAIT, seq, count)
    for tid, syscall in enumerate(calls):
        record += struct.pack("<IIQQ", tid, 0, 0x7FFF00000000, 0x7F0000001000) + syscall
    return record


def continuation(next_slot, words):
    return struct.pack("<II", next_slot, 0) + b"".join(struct.pack("<Q", word) for word in words)


def crash(next_slot, signal=11, time_ns=10**9, message=b"last words", exception=b"St9exception"):
    record = struct.pack("<IIQQQIIiiQiiQQQQ", next_slot, CRASH_RECORD, 1, 2, time_ns, 0, 7, signal, 1, 8, 0, 0, 6, 14,
                         0x7FFF00000000, 0x7FFF00010000)
    assert len(record) == 96
    return record + message.ljust(512, b"\0")[:512] + exception.ljust(512, b"\0")[:512]


def write_rings():
    full = [0xFFFFFFFFFFFFFFFF] + list(range(64))
    rings = {
        "empty": ring([], []),
        "two_stacks": ring([thread(words=70, payload=[0b11, 1, 2, 0, 0b1, 3], outer_words=10)], [0]),
        "second_stack_is_missing": ring([thread(words=1, payload=[0b1, 1], outer_words=20000)], [0]),
        "one_thread": ring([thread(words=100, payload=[0b1011, 1, 2, 3, 0])], [0]),
        "long_stack": ring(
            [
                thread(next_slot=1, words=64 * 7, payload=(full * 4)[:220]),
                continuation(2, (full * 8)[220:475]),
                continuation(NO_SLOT, (full * 8)[475:520]),
            ],
            [0],
        ),
        "statuses": ring([statuses(36), statuses(1), statuses(37), statuses(3, status=200)], range(4)),
        "calls": ring(
            [
                thread(syscall=call(FUTEX, IN_A_CALL | 3, [0x601000, 128])),
                thread(syscall=call(POLL, IN_A_CALL | 0x3F, [0x7FFF00000000, 2**64 - 1, 3, 4, 5, 6])),
                thread(syscall=call(0xFFFFFFFF, 0xFFFFFFFF, [2**64 - 1] * 6)),
                thread(syscall=call(FUTEX, 3, [0x601000, 128])),
            ],
            range(4),
        ),
        "waits": ring(
            [
                waits(25, [call(FUTEX, IN_A_CALL | 3, [0x601000, 128])] * 25),
                waits(2, [call(), call(READ, IN_A_CALL | 1, [7])]),
                waits(26, [call(0xFFFFFFFF, 0xFFFFFFFF, [2**64 - 1] * 6)] * 25),
                waits(0xFFFFFFFF, []),
            ],
            range(4),
        ),
        "managed": ring([thread(words=1, payload=[1, 2], managed=runtime() + frame(anchor=0x7FFF00000000) + symbol() +
                                frame(flags=1) + runtime(runtime=2, status=4) + frame())], [0]),
        "managed_without_a_runtime": ring([thread(managed=frame() + symbol())], [0]),
        "managed_sizes": ring(
            [
                thread(managed=runtime() + frame(size_bytes=8)),
                thread(managed=runtime() + frame(size_bytes=0)),
                thread(managed=runtime() + frame(size_bytes=2**32 - 8)),
                thread(managed=runtime() + symbol(function_bytes=0xFFFF)),
                thread(managed=runtime() + struct.pack("<HHI", 9, 0, 8) + frame()),
                thread(managed=runtime() * 9),
            ],
            range(6),
        ),
        "managed_words_at_the_edge": ring(
            [thread(managed=runtime(), managed_words=count) for count in (5, 16384, 16385, 2**32 - 1, 3)], range(5)
        ),
        "cycle": ring([thread(next_slot=1), continuation(0, [])], [0, 1]),
        "out_of_range": ring([thread(next_slot=SLOTS), thread(next_slot=0x7FFFFFFF)], [0, 1]),
        "mask_beyond_the_end": ring([thread(words=3, payload=[0b1001, 1, 2])], [0]),
        "words_missing": ring([thread(words=64 * 5, payload=[0xFFFFFFFFFFFFFFFF] * 220)], [0]),
        "unknown_kind": ring([thread(kind=9), thread(kind=0)], [0, 1]),
        "sizes_at_the_edge": ring(
            [thread(words=count) for count in (0x8000, 0x8001, 0xFFFFFFFF, 0x7FFFFFFF, 64, 65)], range(6)
        ),
        "all_share_one_chain": ring([thread(next_slot=(slot + 1) % SLOTS) for slot in range(SLOTS)], range(SLOTS)),
        "ready_beyond_the_last_slot": ring([thread()], range(60, 4096)),
        "crash": ring([crash(1), thread(words=70, payload=[0b11, 1, 2, 0, 0b1, 3], outer_words=10)], [0]),
        "crash_without_thread": ring([crash(NO_SLOT)], [0]),
        "crash_in_a_circle": ring([crash(0)], [0]),
        "crash_with_bad_text": ring([crash(1, message=b"\xff" * 512, exception=b"\xe2\x28" * 256), thread()], [0]),
        "tentative": ring([crash(1), thread(), crash(3, time_ns=2**64 - 1), thread()], [], tentative=[1, 3, 5, 2**32 - 1, 71]),
        "tentative_and_ready": ring([crash(1), thread(), thread()], [0, 2], tentative=[1, 3]),
        "bad_text": ring([thread(name=b"\xff" * 16), thread(name=b"\xc3\x28\xe0\x80")], [0, 1]),
    }
    for name, content in rings.items():
        write("ring_reader_fuzzer_corpus", name, content + b"\0")
    for name in ("one_thread", "long_stack", "statuses", "crash", "tentative", "calls", "waits", "managed"):
        write("ring_reader_fuzzer_corpus", name + "_scribbled", rings[name] + b"\1")


# --- Messages: records of registration_fuzzer.cc, "operation, fds, size, bytes". ---

HELLO, FILE, DUMP_REQUEST, NAME, CRASH, FD_NAMES = 1, 5, 7, 8, 9, 11
SEND, SEND_AS_IS, CONNECT, CLOSE, RING, ANSWER, SPOOL = range(7)
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


def placed(variables):
    """HELLO, and what stands behind it."""
    plain = hello()
    return plain[:4] + struct.pack("<I", len(plain) + len(variables)) + plain[8:] + variables


def file_answer(request_id, error=0):
    return message(FILE, struct.pack("<Ii", request_id, error))


READY, TENTATIVE, FIRST_SLOT = 384 + 512, 288, 8192


def crash_in_ring(slot):
    """A crash record in `slot` and its thread in the next, word by word."""
    return in_ring(slot, crash(slot + 1)[:96] + bytes(SLOT_BYTES - 96) + thread(words=2, payload=[3, 1, 2]))


def in_ring(slot, content):
    """Slots from `slot` on, word by word: at most some dozens of them that are not 0."""
    at = FIRST_SLOT + slot * SLOT_BYTES
    words = [content[i:i + 8].ljust(8, b"\0") for i in range(0, len(content), 8)]
    writes = [struct.pack("<H", at + 8 * i) + word for i, word in enumerate(words) if any(word)]
    return b"".join(operation(RING, write) for write in writes)


# --- Spool files: spool.h. ---


def spool(slots=None, maps=b"", images=(), magic=0x31676C7053646B53, process=None, **sizes):
    slots = slots if slots is not None else [crash(1), thread(words=70, payload=[0b11, 1, 2, 0, 0b1, 3], outer_words=10)]
    counts = {"slot_count": len(slots), "maps_bytes": len(maps), "image_count": len(images), "header_bytes": 40 + 1448, **sizes}
    header = struct.pack("<QIIIIIIQ", magic, 1, counts["header_bytes"], counts["slot_count"], counts["maps_bytes"],
                         counts["image_count"], 0, 1_700_000_000 * 10**9)[:40]
    body = b"".join(slot.ljust(SLOT_BYTES, b"\0") for slot in slots) + maps
    for address, content in images:
        body += struct.pack("<QII", address, len(content), 0) + content
    return header + (process or hello()) + body


def elf_header(programs=1):
    return struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, programs, 64, 0, 0) + bytes(56)


def write_spools():
    maps = (b"555555554000-555555556000 r--p 00000000 fe:00 1234 /bin/sleep\n"
            b"555555556000-55555555a000 r-xp 00002000 fe:00 1234 /bin/sleep\n"
            b"7ffff7fc9000-7ffff7fcb000 r-xp 00000000 00:00 0 [vdso]\n"
            b"7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n")
    good = spool(maps=maps, images=[(0x555555554000, elf_header()), (0x7FFFF7FC9000, bytes(4096))])
    files = {
        "good": good,
        "no_maps": spool(),
        "unfinished": spool(magic=0),
        "cut": good[:-50],
        "cut_in_header": good[:700],
        "no_slots": spool(slots=[]),
        "slots_that_are_not_there": spool(slot_count=4096),
        "maps_that_are_not_there": spool(maps_bytes=0xFFFFFFFF),
        "images_that_are_not_there": spool(image_count=512),
        "image_too_large": spool(images=[(0, bytes(4097))]),
        "a_thread_is_no_crash": spool(slots=[thread()]),
        "header_of_another_size": spool(header_bytes=5000),
        "program_headers_beyond_the_image": spool(maps=maps, images=[(0x555555554000, elf_header(60000))]),
        "maps_name_a_device": spool(maps=maps.replace(b"/bin/sleep", b"/dev/zero"), images=[(0x555555554000, elf_header())]),
        "nobody": spool(process=hello(pid=-1)),
    }
    for name, content in files.items():
        write("spool_fuzzer_corpus", name, content)


def write_registrations():
    good = operation(SEND, hello(), [MEM, MAPS, PROC])
    finish = operation(RING, struct.pack("<HQ", 140, 1)) + operation(RING, struct.pack("<HQ", 132, 1 | 3 << 32))
    ready = lambda slots: operation(RING, struct.pack("<HQ", READY, sum(1 << slot for slot in slots)))
    heartbeat = lambda cell, at, value: operation(RING, struct.pack("<HQ", 4096 + 64 * cell + at, value))
    waits_for = lambda syscall: in_ring(0, thread(syscall=syscall)) + ready([0])
    named = lambda first: operation(ANSWER, bytes([first, 0]) + b"pipe:[17]\0\xff\n" * 20)
    cases = {
        "waits_for_fd": good + named(1) + waits_for(call(READ, IN_A_CALL | 1, [7])) + finish,
        "waits_for_fd_and_is_told_nonsense": good + named(4) + waits_for(call(READ, IN_A_CALL | 1, [7])) + finish,
        "waits_for_futex": good + named(3) + waits_for(call(FUTEX, IN_A_CALL | 3, [0x7FFFFFFDE000, 128])) + finish,
        "polls": good + named(3) + waits_for(call(POLL, IN_A_CALL | 3, [0x555555554000, 2**63])) + finish,
        "selects": good + named(3) + waits_for(call(SELECT, IN_A_CALL | 15, [2**31 - 1] + [0x555555554000] * 3)) + finish,
        "fd_names_that_nobody_asked_for": good + operation(SEND, message(FD_NAMES, struct.pack("<II", 1, 2**32 - 1)
        + bytes(7680))) * 2 + finish,
        "sample": good + finish + in_ring(1, waits(1, [call(FUTEX, IN_A_CALL | 3, [0x601000, 0])], seq=2)) + ready([1]),
        "heartbeats": good + heartbeat(0, 0, 5) + heartbeat(0, 8, 1000 | 7 << 32) + heartbeat(0, 16, 0x0A41FF1B42)
        + heartbeat(63, 8, 2**64 - 1) + heartbeat(62, 8, 1) + finish,
        "good": good + finish,
        "placed": operation(SEND, placed(b"POD_NAME=a-0\0OTEL_RESOURCE_ATTRIBUTES=k=%41,x=1\0STACKD_CONTAINER_IMAGE=a:1@b\0"),
                            [MEM, MAPS, PROC]) + finish,
        "placed_nonsense": operation(SEND, placed(b"=\0\0POD_NAME\0OTEL_RESOURCE_ATTRIBUTES=%,=%zz\xff" + b"x" * 3000),
                                     [MEM, MAPS, PROC]) + finish,
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
        "crash": good + crash_in_ring(0) + operation(RING, struct.pack("<HQ", READY, 1)) + operation(SEND, message(CRASH, b"")),
        "crash_and_gone": good + crash_in_ring(0) + operation(RING, struct.pack("<HQ", READY, 1)) + operation(CLOSE),
        "tentative_and_gone": good + crash_in_ring(3) + operation(RING, struct.pack("<HQ", TENTATIVE, 4)) + operation(CLOSE),
        "crash_that_is_none": good + operation(SEND, message(CRASH, b"")) * 5 + finish,
        "spooled": good + operation(SPOOL, spool()) + operation(CLOSE),
        "spooled_as_another": good + operation(SPOOL, spool(process=hello(pid=43))) + operation(CLOSE),
        "spooled_garbage": good + operation(SPOOL, b"x" * 3000) + operation(CLOSE),
        "closed": good + operation(CLOSE),
        "same_id": good + operation(CONNECT) + good + finish,
        "numbers_at_the_edge": operation(SEND, hello(pid=-1, ticks=2**64 - 1, signal=-5, exe=b"\xff" * 1024), [MEM, MAPS, PROC])
        + finish,
    }
    for name, content in cases.items():
        write("registration_fuzzer_corpus", name, content)


# --- Core files: ELF header, program headers, notes, contents. ---

PT_LOAD, PT_NOTE, READ_ONLY, CODE, WRITABLE = 1, 4, 4, 5, 6
NT_PRSTATUS, NT_PRPSINFO, NT_AUXV, NT_SIGINFO, NT_FILE = 1, 3, 6, 0x53494749, 0x46494C45


def note(kind, says, name=b"CORE", size=None):
    return struct.pack("<III", len(name) + 1, len(says) if size is None else size, kind) + b"".join(
        part + bytes(-len(part) % 4) for part in (name + b"\0", says))


def core_thread(tid):
    registers = struct.pack("<27Q", *[0x7F0000001000] * 27)
    return note(NT_PRSTATUS, bytes(32) + struct.pack("<i", tid) + bytes(76) + registers + bytes(8))


def core_files(*files, count=None):
    listed = b"".join(struct.pack("<QQQ", start, end, page) for start, end, page, _ in files)
    return note(NT_FILE, struct.pack("<QQ", len(files) if count is None else count, 4096) + listed
                + b"".join(path + b"\0" for *_, path in files))


def core(notes, *segments, count=None, section=b""):
    """`segments`: (address, bytes of memory, flags, contents)."""
    at = 64 + 56 * (len(segments) + 1)
    headers, contents = struct.pack("<IIQQQQQQ", PT_NOTE, 0, at, 0, 0, len(notes), 0, 4), notes
    for address, size, flags, there in segments:
        headers += struct.pack("<IIQQQQQQ", PT_LOAD, flags, at + len(contents), address, 0, len(there), size, 4096)
        contents += there
    end = at + len(contents)
    count = len(segments) + 1 if count is None else count
    return (b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, end if section else 0, 0, 64, 56,
                                                              count, 64, len(section) // 64, 0) + headers + contents + section)


def write_cores():
    start, page = 0x400000, elf_header().ljust(4096, b"\0")
    thread_and_files = core_thread(7) + core_files((start, start + 4096, 0, b"/bin/sleep"), (start + 4096, start + 8192, 1,
                                                                                           b"/bin/sleep"))
    whole = core(thread_and_files + note(NT_AUXV, struct.pack("<4Q", 9, start + 4096, 25, 0x7FFE00000010))
                 + note(NT_SIGINFO, struct.pack("<3i", 11, 0, 1).ljust(128, b"\0")) + note(NT_PRPSINFO, bytes(136)) + core_thread(8),
                 (start, 4096, READ_ONLY, page), (start + 4096, 4096, CODE, b""), (0x7FFE00000000, 8192, WRITABLE, bytes(8192)))
    some = [(start + 4096 * i, 4096, WRITABLE, b"x") for i in range(20)]
    files = {
        "good": whole,
        "cut": whole[:-5000],
        "cut_in_notes": whole[:500],
        "cut_in_header": whole[:60],
        "by_a_debugger": core(thread_and_files, (start, 4096, READ_ONLY, page), section=bytes(128)),
        "program_headers_beyond_the_page": core(thread_and_files, (start, 4096, READ_ONLY, elf_header(60000).ljust(4096, b"\0"))),
        "segments_overlap": core(thread_and_files, *[(address - 2048 * (i % 3), *rest) for i, (address, *rest) in enumerate(some)]),
        "segment_wraps_around": core(thread_and_files, (2**64 - 4096, 8192, WRITABLE, b"")),
        "more_segments_than_there_are": core(thread_and_files, *some, count=60000),
        "four_billion_segments": core(thread_and_files, count=0xFFFF, section=bytes(44) + b"\xff" * 4 + bytes(16)),
        "files_that_are_not_there": core(core_thread(7) + core_files((start, start + 4096, 0, b"/bin/sleep"), count=2**61)),
        "file_offset_overflows": core(core_thread(7) + core_files((start, start + 8192, 2**62, b"/bin/sleep")), *some),
        "files_overlap": core(core_thread(7) + core_files(*[(start + 2048 * i, start + 2048 * i + 4096, i, b"/bin/sleep")
                                                            for i in range(9)]), *some),
        "note_beyond_the_end": core(core_thread(7) + note(NT_PRSTATUS, b"x", size=2**32 - 1)),
        "empty_notes": core(core_thread(7) + bytes(12) * 5000),
        "maps_name_a_device": core(core_thread(7) + core_files((start, start + 4096, 0, b"/dev/zero")), (start, 4096, CODE, page)),
        "no_thread": core(core_files()),
    }
    for name, content in files.items():
        write("core_fuzzer_corpus", name, content)


# --- PHP: the managed part of a record. ---


def write_phps():
    php, boundary = 4, 1
    shop = symbol(2, b"pay", b"/srv/shop.php", b"Shop")
    files = {
        "frames": runtime(php) + frame(1) + frame(2) + frame(0, flags=boundary) + frame(3) + symbol(1, b"sleep", b"", b"") + shop,
        "nameless": runtime(php) + frame(1) + frame(2) + symbol(1, b"", b"/srv/shop.php", b"") + symbol(2, b"", b"\xff", b""),
        "anonymous_class": runtime(php) + frame(1) + symbol(1, b"run", b"/srv/shop.php", b"class@anonymous\0/srv/shop.php:3$0"),
        "ended_early": runtime(php) + frame(2) + shop + runtime(php, status=2),
        "unknown_version": runtime(php, status=1),
        "two_versions": runtime(php) + frame(2) + shop + runtime(php, flags=1) + frame(2),
        "name_too_long": runtime(php) + frame(1) + symbol(1, b"x" * 2000, b"y" * 2000, b"z" * 2000),
    }
    for name, content in files.items():
        write("php_fuzzer_corpus", name, content)


# --- Ruby: words of memory, as ruby_fuzzer.cc has them. ---

RUBIES = ("3_1", "3_2", "3_3", "3_4", "unknown")
# In words: of a thread its native thread, tid, node, Mutex and name; of a ractor its owner and its list.
RUBY_FIELDS = {"3_1": (0, 11, 13, 33, 44, 42, 48), "3_2": (5, 2, 7, 27, 38, 42, 48), "3_3": (5, 3, 9, 43, 54, 41, 43),
               "3_4": (5, 3, 9, 43, 56, 41, 43), "unknown": (5, 3, 9, 43, 56, 41, 43)}


def ruby(version, mutex_waits=False, vm_waits=False, endless=False):
    """Two threads: the first has the lock of the VM and a Mutex, for which the second waits on its stack."""
    native, tid, node, mutex, name, owner, waiters = RUBY_FIELDS[version]
    threads, natives, ractor, waiter = (100, 200), (300, 310), 320, 20
    an_object, data, kind, fiber, text = 400, 410, 420, 430, 460
    words = {}

    def point(at, to):
        words[at] = 0x8000 | to

    for i, thread_at in enumerate(threads):
        point(8 * i + 6, thread_at)
        point(thread_at + 3, ractor)
        if native:
            point(thread_at + native, natives[i])
        words[(natives[i] if native else thread_at) + tid] = 7 + i
        point(thread_at + name, text)
    words |= {text: 0x05, text + 2: 2, text + 3: 0x6261, an_object: 0x0C, kind: 0x7FFF}
    point(ractor + owner, threads[0])
    for head in (ractor + waiters, data + 2):
        point(head, head)
        point(head + 1, head)
    point(an_object + 2, kind)
    point(an_object + 4, data)
    point(data, fiber)
    point(fiber + 16, threads[0])
    links = [(data + 2, waiter + 3)] if mutex_waits else []
    links += [(ractor + waiters, threads[1] + node)] if vm_waits else []
    for head, link in links:
        point(head, link)
        point(link, link if endless else head)
        point(link + 1, head)
    if mutex_waits:
        point(waiter, an_object)
        point(waiter + 1, threads[1])
        point(threads[1] + mutex, an_object)
    memory = struct.pack(f"<{max(words) + 1}H", *(words.get(at, 0) for at in range(max(words) + 1)))
    return struct.pack("<B3H", RUBIES.index(version), 0, 8, 0) + memory


def write_rubies():
    for version in RUBIES:
        write("ruby_fuzzer_corpus", f"mutex_{version}", ruby(version, mutex_waits=True))
        write("ruby_fuzzer_corpus", f"vm_lock_{version}", ruby(version, vm_waits=True))
    write("ruby_fuzzer_corpus", "no_memory", struct.pack("<B3H", 0, 0, 8, 16))
    write("ruby_fuzzer_corpus", "lists_without_end", ruby("3_1", mutex_waits=True, vm_waits=True, endless=True))


# --- CPython: a heap that begins with its interpreter (cpython_fuzzer.cc). ---

CPYTHONS = range(0x308, 0x30e)
MODULES = dict(zip(CPYTHONS, (56, 856, 856, 888, 944, 7656)))


class PythonHeap:
    def __init__(self, version):
        self.version = version
        self.words = [0] * (MODULES[version] // 8 + 1)
        self.types = {}

    def put(self, *words):
        """The address of these words, as the fuzzer reads it."""
        at = 8 * len(self.words)
        self.words += words
        return 0xab << 56 | at

    def characters(self, text):
        padded = text.encode() + bytes(8 - len(text) % 8)
        return struct.unpack(f"<{len(padded) // 8}Q", padded)

    def object(self, kind, *words):
        if kind not in self.types:
            self.types[kind] = self.put(0, 0, 0, self.put(*self.characters(kind)))
        return self.put(1, self.types[kind], *words)

    def text(self, text):
        kind, compact, ascii_only = 1 << 2, 1 << 5, 1 << 6
        between = [0] if self.version < 0x30c else []
        return self.object("str", len(text), 0, kind | compact | ascii_only, *between, *self.characters(text))

    def dict(self, **entries):
        pairs = [(self.text(key.replace("__", ".")), value) for key, value in entries.items()]
        if self.version < 0x30b:
            keys = self.put(1, 8, 0, 0, len(pairs), 0, *[word for key, value in pairs for word in (0, key, value)])
        else:
            indices_of_8_bytes, without_hashes = 3 << 8, 1 << 16
            keys = self.put(1, indices_of_8_bytes | without_hashes, 0, len(pairs), 0, *[word for pair in pairs for word in pair])
        return self.object("dict", 0, 0, keys, 0)

    def code(self, name):
        words = [0] * 30
        at = {"file": 104, "name": 112, "lines": 120} if self.version < 0x30b else {"file": 112, "name": 128, "lines": 136}
        words[at["file"] // 8 - 2] = self.text("shop.py")
        words[at["name"] // 8 - 2] = self.text(name)
        words[at["lines"] // 8 - 2] = self.object("bytes", 2, 0, 0x0102)
        if self.version < 0x30b:
            words[48 // 8 - 2] = self.object("bytes", 16, 0, *self.characters("d\0H\0H\0H\0"))
        return self.object("code", *words)

    def coroutine(self, name, awaited, suspended=-1):
        code = self.code(name)
        if self.version < 0x30b:
            position, state = (104, 116) if self.version < 0x30a else (96, 108)
            values = self.put(awaited)
            frame = [0] * 16
            frame[32 // 8 - 2] = code
            frame[64 // 8 - 2] = values
            frame[72 // 8 - 2] = values + 8
            frame[80 // 8 - 2] = 1
            frame[position // 8 - 2] = 2
            if self.version == 0x30a:
                frame[state // 8 - 2] |= (suspended & 0xff) << 32
            return self.object("coroutine", self.object("frame", *frame), 0, code)
        start = 80 if self.version == 0x30b else 72
        words = [0] * 24
        words[start // 8 - 3] = (suspended & 0xff) << 24
        words[start // 8 - 2 + (4 if self.version == 0x30b else 0)] = code
        words[start // 8 - 2 + 7] = code + 200
        words[start // 8 - 2 + 8] = 1
        words[start // 8 - 2 + 9] = awaited
        return self.object("coroutine", *words)

    def task(self, coroutine, following=0):
        return self.object("_asyncio.Task", *[0] * 8, coroutine, self.text("a task"), 0, following)

    def bytes(self, tasks, **modules):
        references = [word for task in tasks for word in (self.object("weakref", task), 0)]
        table = self.put(*references, *[0] * (16 - len(references)))
        weak_set = self.object("WeakSet", self.object("set", 0, len(tasks), 7, table))
        name = "_all_tasks" if self.version < 0x30c else "_scheduled_tasks"
        module = self.object("module", self.dict(**{name: weak_set}), 0, 0)
        self.words[MODULES[self.version] // 8] = self.dict(asyncio__tasks=module, **modules)
        return bytes([self.version - 0x308]) + struct.pack(f"<{len(self.words)}Q", *self.words)


def write_cpythons():
    for version in CPYTHONS:
        heap = PythonHeap(version)
        inner = heap.coroutine("inner", heap.object("_asyncio.FutureIter", 0))
        tasks = [heap.task(heap.coroutine("order", inner)), heap.task(heap.coroutine("pay", inner))]
        write("cpython_fuzzer_corpus", f"tasks_{version:x}", heap.bytes(tasks))
    heap = PythonHeap(0x30b)
    coroutine = heap.coroutine("forever", 0)
    heap.words[(coroutine & 0xffff) // 8 + 2 + 8 + 9] = coroutine
    write("cpython_fuzzer_corpus", "awaits_itself", heap.bytes([heap.task(coroutine)]))
    heap = PythonHeap(0x30d)
    first = heap.task(heap.coroutine("newest", 0))
    second = heap.task(heap.coroutine("oldest", 0), following=first)
    heap.words[(first & 0xffff) // 8 + 2 + 11] = second
    module = heap.object("module", 0, 0, heap.put(*[0] * 30, first, *[0] * 170))
    write("cpython_fuzzer_corpus", "list_without_end", heap.bytes([], _asyncio=module))


write_cores()
write_rings()
write_registrations()
write_spools()
write_phps()
write_rubies()
write_cpythons()
