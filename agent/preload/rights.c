/* Functions that change what a thread may do: its user and groups, capabilities, namespaces, filters of system calls. (And
 * its root, before which the process looks at itself once more.) The
 * helper is a thread of this process that the C library does not know. Without this it would keep the rights that the
 * program gives up, and a process with two threads may not enter a user namespace. So it ends before such a call and starts
 * again, from the thread that made the call, with what that has left.
 *
 * After a filter of system calls it does not start again: each call of its own could be the end of the program. Unless the
 * program was started with STACKD_SECCOMP_DUMPS=1.
 *
 * A call that the program makes without the C library is not seen.
 */
#include <errno.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/crash/crash_link.h"
#include "agent/helper/introduction.h"
#include "agent/helper/life.h"
#include "agent/helper/requests.h"
#include "agent/install/install.h"
#include "agent/preload/preload.h"
#include "agent/sys/filtered.h"

#define MS 1000000ull
/* A filter is final: what the daemon must know of the process is told before, if there is a daemon that listens. */
#define BEFORE_FILTER_NS (100 * MS)

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

typedef long syscall_fn(long, long, long, long, long, long, long);

static syscall_fn* real_syscall;

/* A child of vfork() has its parent's memory, and no helper. After a filter there is none either, and no call is made to
 * find that out. */
static bool has_helper_of_its_own(void) {
  return stackd_taken_signal() != 0 && !stackd_is_filtered() && !stackd_is_other_process();
}

static bool hold(void) {
  if (!has_helper_of_its_own()) return false;
  stackd_helper_before_change();
  stackd_helper_hold();
  return true;
}

/* errno is that of the call. */
static void release(bool held) {
  if (!held) return;
  int error = errno;
  stackd_helper_release();
  errno = error;
}

#define CHANGE_RIGHTS(name, ...)            \
  static __typeof__(name)* real;            \
  if (STACKD_BEHIND(real, #name) == NULL) { \
    errno = ENOSYS;                         \
    return -1;                              \
  }                                         \
  bool held = hold();                       \
  int result = real(__VA_ARGS__);           \
  release(held);                            \
  return result

STACKD_EXPORT int setuid(uid_t uid) { CHANGE_RIGHTS(setuid, uid); }
STACKD_EXPORT int seteuid(uid_t uid) { CHANGE_RIGHTS(seteuid, uid); }
STACKD_EXPORT int setreuid(uid_t real_uid, uid_t uid) { CHANGE_RIGHTS(setreuid, real_uid, uid); }
STACKD_EXPORT int setresuid(uid_t real_uid, uid_t uid, uid_t saved) { CHANGE_RIGHTS(setresuid, real_uid, uid, saved); }
STACKD_EXPORT int setgid(gid_t gid) { CHANGE_RIGHTS(setgid, gid); }
STACKD_EXPORT int setegid(gid_t gid) { CHANGE_RIGHTS(setegid, gid); }
STACKD_EXPORT int setregid(gid_t real_gid, gid_t gid) { CHANGE_RIGHTS(setregid, real_gid, gid); }
STACKD_EXPORT int setresgid(gid_t real_gid, gid_t gid, gid_t saved) { CHANGE_RIGHTS(setresgid, real_gid, gid, saved); }
STACKD_EXPORT int setgroups(size_t count, const gid_t* groups) { CHANGE_RIGHTS(setgroups, count, groups); }
STACKD_EXPORT int initgroups(const char* user, gid_t group) { CHANGE_RIGHTS(initgroups, user, group); }
STACKD_EXPORT int setfsuid(uid_t uid) { CHANGE_RIGHTS(setfsuid, uid); }
STACKD_EXPORT int setfsgid(gid_t gid) { CHANGE_RIGHTS(setfsgid, gid); }
STACKD_EXPORT int unshare(int flags) { CHANGE_RIGHTS(unshare, flags); }
STACKD_EXPORT int setns(int fd, int kind) { CHANGE_RIGHTS(setns, fd, kind); }

/* <sys/capability.h> is no part of the C library. */
int capset(void* header, const void* data);
STACKD_EXPORT int capset(void* header, const void* data) { CHANGE_RIGHTS(capset, header, data); }

/* The root is one for all threads, and no right. */
static bool is_change_of_root(long number) { return number == SYS_chroot || number == SYS_pivot_root; }

STACKD_EXPORT int chroot(const char* path) {
  static __typeof__(chroot)* real;
  if (STACKD_BEHIND(real, "chroot") == NULL) {
    errno = ENOSYS;
    return -1;
  }
  if (has_helper_of_its_own()) stackd_helper_before_change();
  return real(path);
}

/* A call without a program is a question whether there are filters. */
static bool is_filter(long number, long option, long b, long c) {
  if (number == SYS_seccomp) return option == SECCOMP_SET_MODE_STRICT || (option == SECCOMP_SET_MODE_FILTER && c != 0);
  if (number != SYS_prctl) return false;
  if (option == PR_SET_SYSCALL_USER_DISPATCH) return b != 0;
  return option == PR_SET_SECCOMP && (b == SECCOMP_MODE_STRICT || (b == SECCOMP_MODE_FILTER && c != 0));
}

static bool changes_rights(long number, long option) {
  if (number != SYS_prctl) return true;
  return option == PR_SET_KEEPCAPS || option == PR_CAPBSET_DROP || option == PR_SET_SECUREBITS ||
         option == PR_SET_NO_NEW_PRIVS || option == PR_CAP_AMBIENT;
}

static long put_filter(long number, long a, long b, long c, long d, long e, long f) {
  if (!has_helper_of_its_own()) return real_syscall(number, a, b, c, d, e, f);
  stackd_helper_before_change();
  if (stackd_helper_has_daemon()) stackd_crash_make_known(BEFORE_FILTER_NS);
  /* The helper stays, and has the filter only if that is for all threads. */
  if (stackd_has_dumps_under_filter()) return real_syscall(number, a, b, c, d, e, f);
  /* A thread that the filter met in its first system calls would end the program. */
  stackd_preload_await_threads(BEFORE_FILTER_NS);
  stackd_helper_silence();
  stackd_requests_say_filtered(true);
  stackd_helper_hold();
  long result = real_syscall(number, a, b, c, d, e, f);
  /* It may allow the program next to nothing: no call of ours from here on. */
  if (result >= 0) {
    stackd_set_filtered();
    return result;
  }
  release(true);
  stackd_requests_say_filtered(false);
  return result;
}

/* A call of those in special_calls, by syscall() or prctl(). */
__attribute__((used)) static long special_call(long number, long a, long b, long c, long d, long e, long f) {
  if (is_filter(number, a, b, c)) return put_filter(number, a, b, c, d, e, f);
  if (is_change_of_root(number)) {
    if (has_helper_of_its_own()) stackd_helper_before_change();
    return real_syscall(number, a, b, c, d, e, f);
  }
  bool held = changes_rights(number, a) && hold();
  long result = real_syscall(number, a, b, c, d, e, f);
  release(held);
  return result;
}

__attribute__((used)) static long first_call(long number, long a, long b, long c, long d, long e, long f);
__attribute__((used)) static syscall_fn* next_call = first_call;

void stackd_preload_find_rights(void) {
  STACKD_BEHIND(real_syscall, "syscall");
  next_call = real_syscall;
}

/* Serves a constructor that runs before ours. */
static long first_call(long number, long a, long b, long c, long d, long e, long f) {
  stackd_preload_find_rights();
  return real_syscall(number, a, b, c, d, e, f);
}

#define BIT_IN(word, number) ((number) / 64 == (word) ? 1ull << ((number) % 64) : 0)
#define SPECIAL_IN(word)                                                                                                  \
  (BIT_IN(word, SYS_setuid) | BIT_IN(word, SYS_setgid) | BIT_IN(word, SYS_setreuid) | BIT_IN(word, SYS_setregid) |        \
   BIT_IN(word, SYS_setgroups) | BIT_IN(word, SYS_setresuid) | BIT_IN(word, SYS_setresgid) | BIT_IN(word, SYS_setfsuid) | \
   BIT_IN(word, SYS_setfsgid) | BIT_IN(word, SYS_capset) | BIT_IN(word, SYS_unshare) | BIT_IN(word, SYS_setns) |          \
   BIT_IN(word, SYS_prctl) | BIT_IN(word, SYS_seccomp) | BIT_IN(word, SYS_landlock_restrict_self) |                       \
   BIT_IN(word, SYS_chroot) | BIT_IN(word, SYS_pivot_root))

/* Bit n: system call n may change rights. */
__attribute__((used)) static const uint64_t special_calls[8] = {SPECIAL_IN(0), SPECIAL_IN(1), SPECIAL_IN(2), SPECIAL_IN(3),
                                                                SPECIAL_IN(4), SPECIAL_IN(5), SPECIAL_IN(6), SPECIAL_IN(7)};

/* A jump for all others: a call that returns twice, as clone() and vfork() do, must not return through a frame of ours. */
__asm__(
    ".text\n"
    ".globl syscall\n"
    ".type syscall, @function\n"
    "syscall:\n\t"
    "cmp $511, %rdi\n\t"
    "ja 1f\n\t"
    "lea special_calls(%rip), %r11\n\t"
    "mov %rdi, %rax\n\t"
    "shr $6, %rax\n\t"
    "mov (%r11,%rax,8), %rax\n\t"
    "bt %rdi, %rax\n\t"
    "jc special_call\n"
    "1:\t"
    "mov next_call(%rip), %r11\n\t"
    "xor %eax, %eax\n\t"
    "jmp *%r11\n"
    ".size syscall, .-syscall\n");

STACKD_EXPORT int prctl(int option, ...) {
  va_list rest;
  va_start(rest, option);
  long b = va_arg(rest, long), c = va_arg(rest, long), d = va_arg(rest, long), e = va_arg(rest, long);
  va_end(rest);
  if (real_syscall == NULL) stackd_preload_find_rights();
  return (int)special_call(SYS_prctl, option, b, c, d, e, 0);
}
