#include "agent/capture/syscall_arguments.h"

/* Bit n: argument n. */
struct kept {
  uint8_t ints;  /* the low 32 bits count */
  uint8_t words; /* addresses, and counts of 64 bits */
};

#define A0 1u
#define A1 2u
#define A2 4u
#define A3 8u
#define A4 16u
#define A5 32u

/* x86-64 has no call of a higher number yet (Linux 6.18). */
#define TABLE_NUMBERS 512u

/* musl's headers lack it. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static const struct kept kKept[TABLE_NUMBERS] = {
    /* fds, how many, timeout */
    [SYS_poll] = {A2, A0 | A1},
    [SYS_ppoll] = {A1, A0 | A2},
    [SYS_select] = {A0, A1 | A2 | A3 | A4},
    [SYS_pselect6] = {A0, A1 | A2 | A3 | A4},
    /* epoll fd, how many, timeout */
    [SYS_epoll_wait] = {A0 | A2 | A3, 0},
    [SYS_epoll_pwait] = {A0 | A2 | A3, 0},
    [SYS_epoll_pwait2] = {A0 | A2, A3},
    /* fd */
    [SYS_read] = {A0, 0},
    [SYS_write] = {A0, 0},
    [SYS_readv] = {A0, 0},
    [SYS_writev] = {A0, 0},
    [SYS_pread64] = {A0, 0},
    [SYS_pwrite64] = {A0, 0},
    [SYS_preadv] = {A0, 0},
    [SYS_pwritev] = {A0, 0},
    [SYS_preadv2] = {A0, 0},
    [SYS_pwritev2] = {A0, 0},
    [SYS_close] = {A0, 0},
    [SYS_connect] = {A0, 0},
    [SYS_accept] = {A0, 0},
    [SYS_fsync] = {A0, 0},
    [SYS_fdatasync] = {A0, 0},
    [SYS_syncfs] = {A0, 0},
    [SYS_sync_file_range] = {A0, 0},
    [SYS_ftruncate] = {A0, 0},
    [SYS_fallocate] = {A0, 0},
    [SYS_getdents64] = {A0, 0},
    /* fd, operation or flags */
    [SYS_accept4] = {A0 | A3, 0},
    [SYS_recvfrom] = {A0 | A3, 0},
    [SYS_sendto] = {A0 | A3, 0},
    [SYS_recvmsg] = {A0 | A2, 0},
    [SYS_sendmsg] = {A0 | A2, 0},
    [SYS_recvmmsg] = {A0 | A3, A4},
    [SYS_sendmmsg] = {A0 | A3, 0},
    [SYS_flock] = {A0 | A1, 0},
    [SYS_fcntl] = {A0 | A1, 0},
    [SYS_ioctl] = {A0 | A1, 0},
    /* two fds, flags */
    [SYS_splice] = {A0 | A2 | A5, 0},
    [SYS_tee] = {A0 | A1 | A3, 0},
    [SYS_vmsplice] = {A0 | A3, 0},
    [SYS_sendfile] = {A0 | A1, 0},
    [SYS_copy_file_range] = {A0 | A2 | A5, 0},
    /* clock, flags, for how long */
    [SYS_nanosleep] = {0, A0},
    [SYS_clock_nanosleep] = {A0 | A1, A2},
    /* of whom, which of them, options */
    [SYS_wait4] = {A0 | A2, 0},
    [SYS_waitid] = {A0 | A1 | A3, 0},
    [SYS_rt_sigtimedwait] = {0, A2},
    /* object, how many operations, flags, timeout */
    [SYS_semop] = {A0 | A2, 0},
    [SYS_semtimedop] = {A0 | A2, A3},
    [SYS_msgrcv] = {A0 | A4, 0},
    [SYS_msgsnd] = {A0 | A3, 0},
    [SYS_mq_timedreceive] = {A0, A4},
    [SYS_mq_timedsend] = {A0, A4},
    /* how many, timeout */
    [SYS_io_getevents] = {0, A1 | A2 | A4},
    [SYS_io_pgetevents] = {0, A1 | A2 | A4},
    [SYS_io_uring_enter] = {A0 | A1 | A2 | A3, 0},
    /* words, how many, flags, timeout, clock */
    [SYS_futex_waitv] = {A1 | A2 | A4, A0 | A3},
};

/* Most operations leave registers unused: what these hold is the program's. */
STACKD_HANDLER static struct kept kept_of_futex(uint32_t operation) {
  struct kept kept = {A1, A0};
  switch (operation & (uint32_t)FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_WAIT_REQUEUE_PI:
      kept.words |= A3;
      break;
    case FUTEX_WAIT_BITSET:
      kept.words |= A3;
      kept.ints |= A5;
      break;
    case FUTEX_WAKE_BITSET:
      kept.ints |= A5;
      break;
    default:
      break;
  }
  return kept;
}

void stackd_syscall_keep(uint32_t number, const uint64_t arguments[STACKD_SYSCALL_ARGUMENTS], struct stackd_syscall* call) {
  struct kept kept = {0, 0};
  if (number == SYS_futex) {
    kept = kept_of_futex((uint32_t)arguments[1]);
  } else if (number < TABLE_NUMBERS) {
    kept = kKept[number];
  }
  call->number = number;
  call->known = STACKD_SYSCALL_KNOWN | kept.ints | kept.words;
  for (int i = 0; i < STACKD_SYSCALL_ARGUMENTS; i++) {
    uint64_t value = arguments[i];
    if ((kept.ints >> i & 1) != 0) {
      value = (uint64_t)(int64_t)(int32_t)value;
    } else if ((kept.words >> i & 1) == 0) {
      value = 0;
    }
    call->arguments[i] = value;
  }
}
