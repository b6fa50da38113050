/* Code made at run time, as a JIT makes it: no file, no unwind tables, and by default frame pointers. Three of its
 * functions call each other, the last calls back into C, which blocks. With "memfd" as the second argument it lies in a
 * file in memory, as .NET's does. */
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

typedef struct shape {
  const char* name;
  uint8_t before[12]; /* up to the address that is called, which rax gets */
  uint8_t before_bytes;
  uint8_t after[10];
  uint8_t after_bytes;
} shape;

static const shape shapes[] = {
    /* push rbp; mov rbp, rsp; sub rsp, 48; mov rax, TARGET; call rax; add rsp, 48; pop rbp; ret */
    {"frame_pointers",
     {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x30, 0x48, 0xb8},
     10,
     {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3},
     8},
    /* sub rsp, 56; mov rax, TARGET; call rax; add rsp, 56; ret */
    {"no_frame_pointers", {0x48, 0x83, 0xec, 0x38, 0x48, 0xb8}, 6, {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x38, 0xc3}, 7},
    /* push rbp; mov ebp, 7; sub rsp, 48; mov rax, TARGET; call rax; add rsp, 48; pop rbp; ret */
    {"number_in_rbp",
     {0x55, 0xbd, 0x07, 0, 0, 0, 0x48, 0x83, 0xec, 0x30, 0x48, 0xb8},
     12,
     {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x30, 0x5d, 0xc3},
     8},
};

static void* emit_function(const shape* shape, uint8_t* at, const void* target) {
  memcpy(at, shape->before, shape->before_bytes);
  memcpy(at + shape->before_bytes, &target, sizeof target);
  memcpy(at + shape->before_bytes + sizeof target, shape->after, shape->after_bytes);
  return at;
}

static const shape* shape_named(const char* name) {
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
    if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
  }
  fprintf(stderr, "no shape of code is named %s\n", name);
  exit(2);
}

typedef void (*jitted)(void);

VICTIM_NOINLINE static void* run_jitted(void* code) {
  jitted entry;
  memcpy(&entry, &code, sizeof entry);
  entry();
  VICTIM_NOT_A_TAIL_CALL();
  return NULL;
}

int main(int argc, char** argv) {
  const shape* shape = shape_named(argc > 1 ? argv[1] : "frame_pointers");
  victim_check(pipe(silent_pipe) == 0, "pipe");
  int file = argc > 2 && strcmp(argv[2], "memfd") == 0 ? memfd_create("code", MFD_CLOEXEC) : -1;
  victim_check(file < 0 || ftruncate(file, 4096) == 0, "ftruncate");
  int flags = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  uint8_t* code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, file, 0);
  victim_check(code != MAP_FAILED, "mmap");
  void (*callee)(void) = called_by_jit;
  const void* target;
  memcpy(&target, &callee, sizeof target);
  for (int i = 0; i < 3; ++i) target = emit_function(shape, code + i * kFunctionBytes, target);
  victim_check(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0, "mprotect");

  static victim_thread thread;
  victim_start(&thread, "jit", run_jitted, code + 2 * kFunctionBytes, 256 << 10);
  victim_await_syscall(thread.tid, SYS_read);
  victim_ready();
  victim_wait_for_ever();
}
