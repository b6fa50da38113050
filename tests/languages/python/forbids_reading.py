"""Two threads asleep, the first of which may call neither process_vm_readv nor pread64 (a seccomp filter says EPERM)."""

import ctypes
import struct
import threading
import time

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
PROCESS_VM_READV, PREAD64 = 310, 17
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
FORBID, ALLOW = 0x00050001, 0x7FFF0000

threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
instructions = b"".join(struct.pack("HBBI", *one) for one in (
    (LOAD_NUMBER, 0, 0, 0), (IF_EQUAL, 1, 0, PROCESS_VM_READV), (IF_EQUAL, 0, 1, PREAD64), (RETURN, 0, 0, FORBID),
    (RETURN, 0, 0, ALLOW)))
code = ctypes.create_string_buffer(instructions, len(instructions))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(instructions) // 8, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0) == 0, ctypes.get_errno()
print("ready", flush=True)
time.sleep(1000)
