/* Code made at run time, as a JIT makes it: no file, no unwind tables, but frame pointers. Three of its functions call each
 * other, the last calls back into C, which blocks. */
#include <sys/mman.h>

#include "tests/programs/victim.h"

static int silent_pipe[2];

VICTIM_NOINLINE static void called_by_jit(void) {
  char byte;
  while (read(silent_pipe[0], &byte, 1) < 0) {
  }
  VICTIM_NOT_A_TAIL_CALL();
}

enum { kFunctionBytes = 64 };

/* push rbp; mov rbp, rsp; sub rsp, 48; mov rax, TARGET; call rax; add rsp, 48; pop rbp; ret */
static void* emit_function(uint8_t* at, const void* target) {
  static const uint8_t before[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x30, 0x48, 0xb8};
  static const uint8_t after[] = {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3};
  memcpy(at, before, sizeof before);
  memcpy(at + sizeof before, &target, sizeof target);
  memcpy(at + sizeof before + sizeof target, after, sizeof after);
  return at;
}

typedef void (*jitted)(void);

VICTIM_NOINLINE static void* run_jitted(void* code) {
  jitted entry;
  memcpy(&entry, &code, sizeof entry);
  entry();
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

int main(void) {
  victim_check(pipe(silent_pipe) == 0, "pipe");
  uint8_t* code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  victim_check(code != MAP_FAILED, "mmap");
  void (*callee)(void) = called_by_jit;
  const void* target;
  memcpy(&target, &callee, sizeof target);
  for (int i = 0; i < 3; ++i) target = emit_function(code + i * kFunctionBytes, target);
  victim_check(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0, "mprotect");

  static victim_thread thread;
  victim_start(&thread, "jit", run_jitted, code + 2 * kFunctionBytes, 256 << 10);
  victim_await_syscall(thread.tid, SYS_read);
  victim_ready();
  victim_wait_for_ever();
}
