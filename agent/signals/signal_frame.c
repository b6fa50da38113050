#include "agent/signals/signal_frame.h"

#include <stddef.h>
#include <ucontext.h>

/* struct rt_sigframe of the kernel: the return address, its ucontext (glibc's is longer), the siginfo. Above it lies the
 * floating-point state, which the context points at. */
#define CONTEXT_OFFSET 8
#define KERNEL_CONTEXT_BYTES (offsetof(ucontext_t, uc_sigmask) + 8)
#define INFO_OFFSET (CONTEXT_OFFSET + KERNEL_CONTEXT_BYTES)
#define FRAME_BYTES (INFO_OFFSET + sizeof(siginfo_t))
#define FP_POINTER_OFFSET (CONTEXT_OFFSET + offsetof(ucontext_t, uc_mcontext.fpregs))

#define RED_ZONE_BYTES 128
#define PAGE_BYTES 4096ull

/* struct _fpx_sw_bytes, in the part of the FXSAVE area that the processor leaves alone. */
#define FXSAVE_BYTES 512
#define SOFTWARE_OFFSET 464
#define SOFTWARE_MAGIC 0x46505853u
struct software_bytes {
  uint32_t magic;
  uint32_t extended_bytes;
};
/* More than any processor has. */
#define MAX_FP_BYTES (64u << 10)

_Static_assert(sizeof(struct stackd_handler_call) <= STACKD_BELOW_FRAME_BYTES,
               "and STACKD_DEFINE_FRAME_ENTER has that number, too");

/* As the kernel asks. */
STACKD_HANDLER static bool is_on_alternate_stack(const struct stackd_signal_frame* frame, uint64_t address) {
  return address > frame->alternate_low && address - frame->alternate_low <= frame->alternate_bytes;
}

void stackd_signal_frame_place(struct stackd_signal_frame* frame, bool on_stack, const void* raw_context) {
  const ucontext_t* context = raw_context;
  frame->address = (uint64_t)context - CONTEXT_OFFSET;
  frame->fp_address = (uint64_t)context->uc_mcontext.fpregs;
  frame->fp_bytes = 0;
  if (frame->fp_address != 0) {
    const struct software_bytes* software = (const struct software_bytes*)(frame->fp_address + SOFTWARE_OFFSET);
    bool is_extended = software->magic == SOFTWARE_MAGIC && software->extended_bytes >= FXSAVE_BYTES &&
                       software->extended_bytes <= MAX_FP_BYTES;
    frame->fp_bytes = is_extended ? software->extended_bytes : FXSAVE_BYTES;
  }
  frame->alternate_low = (uint64_t)context->uc_stack.ss_sp;
  frame->alternate_bytes = context->uc_stack.ss_size;
  frame->new_address = frame->address;
  frame->new_fp_address = frame->fp_address;
  uint64_t rsp = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
  if (on_stack || is_on_alternate_stack(frame, rsp) || !is_on_alternate_stack(frame, frame->address)) return;
  frame->new_fp_address = (rsp - RED_ZONE_BYTES - frame->fp_bytes) & ~63ull;
  /* A function is entered with its stack 8 bytes off 16. */
  frame->new_address = ((frame->new_fp_address - FRAME_BYTES) & ~15ull) - 8;
}

/* The kernel writes the mask there, or says that it cannot. */
STACKD_HANDLER static bool is_writable(uint64_t address) {
  return stackd_syscall6(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)address, 8, 0, 0) == 0;
}

bool stackd_signal_frame_fits(const struct stackd_signal_frame* frame) {
  if (frame->new_address == frame->address) return true;
  uint64_t end = frame->new_fp_address + frame->fp_bytes;
  for (uint64_t at = frame->new_address - STACKD_BELOW_FRAME_BYTES; at < end; at = (at | (PAGE_BYTES - 1)) + 1) {
    if (!is_writable(at)) return false;
  }
  return true;
}

STACKD_HANDLER static void copy(uint64_t to, uint64_t from, uint64_t size_bytes) {
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size_bytes) : : "memory");
}

siginfo_t* stackd_signal_frame_info(const struct stackd_signal_frame* frame) {
  return (siginfo_t*)(frame->new_address + INFO_OFFSET);
}

void* stackd_signal_frame_context(const struct stackd_signal_frame* frame) {
  return (void*)(frame->new_address + CONTEXT_OFFSET);
}

void stackd_signal_frame_move(const struct stackd_signal_frame* frame, const struct stackd_handler_call* call) {
  copy(frame->new_fp_address, frame->fp_address, frame->fp_bytes);
  copy(frame->new_address, frame->address, FRAME_BYTES);
  ucontext_t* context = stackd_signal_frame_context(frame);
  if (frame->fp_address != 0) context->uc_mcontext.fpregs = (fpregset_t)frame->new_fp_address;
  copy(frame->new_address - STACKD_BELOW_FRAME_BYTES, (uint64_t)call, sizeof(*call));
}

STACKD_HANDLER static void read_marks(const uint64_t* frame, uint64_t marks[STACKD_SIGNAL_FRAME_MARKS]) {
  marks[0] = frame[0];
  marks[1] = frame[FP_POINTER_OFFSET / 8];
  marks[2] = frame[(CONTEXT_OFFSET + offsetof(ucontext_t, uc_mcontext.gregs[REG_CR2])) / 8];
  marks[3] = frame[INFO_OFFSET / 8];
}

void stackd_signal_frame_marks(const struct stackd_signal_frame* frame, uint64_t marks[STACKD_SIGNAL_FRAME_MARKS]) {
  read_marks((const uint64_t*)frame->address, marks);
  marks[1] = frame->new_fp_address;
}

bool stackd_signal_frame_is_marked(uint64_t address, const uint64_t marks[STACKD_SIGNAL_FRAME_MARKS]) {
  uint64_t words[FRAME_BYTES / 8];
  if (stackd_read_memory(stackd_getpid(), address, words, sizeof(words)) != sizeof(words)) return false;
  uint64_t found[STACKD_SIGNAL_FRAME_MARKS];
  read_marks(words, found);
  for (int i = 0; i < STACKD_SIGNAL_FRAME_MARKS; i++) {
    if (found[i] != marks[i]) return false;
  }
  return true;
}
