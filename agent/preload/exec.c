/* exec and its relatives: no dump signal may be pending when the new program begins (exec_gate.h). posix_spawn(), system()
 * and the like exec in a child that gets none. And a handler of a crash that calls it does not recover. */
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/crash/crash.h"
#include "agent/install/install.h"
#include "agent/preload/preload.h"
#include "agent/signals/exec_gate.h"

typedef int execve_fn(const char*, char* const[], char* const[]);
typedef int fexecve_fn(int, char* const[], char* const[]);
typedef int execveat_fn(int, const char*, char* const[], char* const[], int);

static execve_fn* real_execve;
static execve_fn* real_execvpe;
static fexecve_fn* real_fexecve;
static execveat_fn* real_execveat;

void stackd_preload_find_exec(void) {
  STACKD_BEHIND(real_execve, "execve");
  STACKD_BEHIND(real_execvpe, "execvpe");
  STACKD_BEHIND(real_fexecve, "fexecve");
  STACKD_BEHIND(real_execveat, "execveat");
}

#define BEHIND_GATE(call)                                                     \
  do {                                                                        \
    stackd_crash_before_end();                                                \
    int taken_signal = stackd_taken_signal();                                 \
    _Bool closed = taken_signal != 0 && stackd_exec_gate_close(taken_signal); \
    int result = (call);                                                      \
    if (closed) stackd_exec_gate_open();                                      \
    return result;                                                            \
  } while (0)

STACKD_EXPORT int execve(const char* path, char* const arguments[], char* const environment[]) {
  BEHIND_GATE(STACKD_BEHIND(real_execve, "execve")(path, arguments, environment));
}

STACKD_EXPORT int execvpe(const char* file, char* const arguments[], char* const environment[]) {
  BEHIND_GATE(STACKD_BEHIND(real_execvpe, "execvpe")(file, arguments, environment));
}

STACKD_EXPORT int fexecve(int fd, char* const arguments[], char* const environment[]) {
  BEHIND_GATE(STACKD_BEHIND(real_fexecve, "fexecve")(fd, arguments, environment));
}

STACKD_EXPORT int execveat(int fd, const char* path, char* const arguments[], char* const environment[], int flags) {
  /* Not in glibc before 2.34, nor in musl. */
  if (STACKD_BEHIND(real_execveat, "execveat") == NULL) {
    BEHIND_GATE((int)syscall(SYS_execveat, fd, path, arguments, environment, flags));
  }
  BEHIND_GATE(real_execveat(fd, path, arguments, environment, flags));
}

STACKD_EXPORT int execv(const char* path, char* const arguments[]) { return execve(path, arguments, environ); }

STACKD_EXPORT int execvp(const char* file, char* const arguments[]) { return execvpe(file, arguments, environ); }

/* Arguments up to the NULL, `first` included. */
static size_t count_arguments(const char* first, va_list rest) {
  size_t count = 0;
  for (const char* argument = first; argument != NULL; argument = va_arg(rest, const char*)) count++;
  return count;
}

/* The variable arguments as an array `arguments`; `rest` is left behind the NULL. */
#define COLLECT(first, rest)                      \
  va_list counted;                                \
  va_start(counted, first);                       \
  size_t count = count_arguments(first, counted); \
  va_end(counted);                                \
  char* arguments[count + 1];                     \
  va_list rest;                                   \
  va_start(rest, first);                          \
  arguments[0] = (char*)first;                    \
  for (size_t i = 1; i <= count; i++) arguments[i] = va_arg(rest, char*)

STACKD_EXPORT int execl(const char* path, const char* first, ...) {
  COLLECT(first, rest);
  va_end(rest);
  return execve(path, arguments, environ);
}

STACKD_EXPORT int execlp(const char* file, const char* first, ...) {
  COLLECT(first, rest);
  va_end(rest);
  return execvpe(file, arguments, environ);
}

STACKD_EXPORT int execle(const char* path, const char* first, ...) {
  COLLECT(first, rest);
  char* const* environment = va_arg(rest, char* const*);
  va_end(rest);
  return execve(path, arguments, environment);
}
