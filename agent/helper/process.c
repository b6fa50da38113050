#include "agent/helper/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

#include "agent/sys/kernel.h"
#include "agent/sys/text.h"

#define DEFAULT_HOLD_MS 2000
#define MAX_HOLD_MS 600000
#define NS_PER_MS 1000000ull

static const char kDefaultDir[] = "/run/stackd";

void stackd_copy_string(char* to, size_t size_bytes, const char* from) {
  size_t length = strnlen(from, size_bytes - 1);
  memcpy(to, from, length);
  memset(to + length, 0, size_bytes - length);
}

/* The first real-time signal that is not the C library's own: 32 and 33 are glibc's, musl has 34 too and refuses it. Go
 * overwrites the handlers of 35 to 64, and leaves 34. */
static int first_free_signal(void) {
  struct sigaction now;
  return sigaction(34, NULL, &now) == 0 ? 34 : 35;
}

static const struct {
  char name[8];
  int number;
} kCrashSignals[] = {
    {"SEGV", SIGSEGV}, {"BUS", SIGBUS},   {"ILL", SIGILL}, {"FPE", SIGFPE},
    {"ABRT", SIGABRT}, {"TRAP", SIGTRAP}, {"SYS", SIGSYS},
};
#define CRASH_SIGNALS (sizeof(kCrashSignals) / sizeof(kCrashSignals[0]))

/* "SEGV,BUS", or "none"; NULL is all. */
static int read_crash_signals(const char* text, uint64_t* signals) {
  *signals = 0;
  if (text != NULL && strcmp(text, "none") == 0) return 0;
  for (size_t i = 0; i < CRASH_SIGNALS && text == NULL; i++) *signals |= 1ull << (kCrashSignals[i].number - 1);
  while (text != NULL) {
    size_t length = strcspn(text, ",");
    size_t i = 0;
    while (i < CRASH_SIGNALS &&
           (strlen(kCrashSignals[i].name) != length || strncmp(kCrashSignals[i].name, text, length) != 0))
      i++;
    if (i == CRASH_SIGNALS) return -EINVAL;
    *signals |= 1ull << (kCrashSignals[i].number - 1);
    text = text[length] == ',' ? text + length + 1 : NULL;
  }
  return 0;
}

static const char* const kShares[] = {
    [STACKD_SHARE_STACKS] = "stacks",
    [STACKD_SHARE_NAMES] = "names",
    [STACKD_SHARE_MEMORY] = "memory",
};

/* NULL: nothing was chosen. */
static int read_share(const char* text, enum stackd_share* share) {
  *share = STACKD_SHARE_NAMES;
  for (int i = STACKD_SHARE_STACKS; text != NULL; i++) {
    if (i > STACKD_SHARE_MEMORY) return -EINVAL;
    *share = (enum stackd_share)i;
    if (strcmp(kShares[i], text) == 0) break;
  }
  return 0;
}

static const char* read_variable(const char* name) {
  const char* text = getenv(name);
  return text != NULL && text[0] != '\0' ? text : NULL;
}

/* A variable that does not fit is left out: half a value would be another. */
static void read_place(struct stackd_settings* settings) {
  static const char* const kVariables[] = STACKD_PLACE_VARIABLES;
  settings->place_bytes = 0;
  for (size_t i = 0; i < sizeof(kVariables) / sizeof(kVariables[0]); i++) {
    const char* value = read_variable(kVariables[i]);
    if (value == NULL) continue;
    size_t left = sizeof(settings->place) - settings->place_bytes;
    int length = snprintf(settings->place + settings->place_bytes, left, "%s=%s", kVariables[i], value);
    if (length > 0 && (size_t)length < left) settings->place_bytes += (uint32_t)length + 1;
  }
}

bool stackd_is_disabled(void) {
  /* With more rights than its caller, who chose the environment: as the loader takes no LD_PRELOAD of such a caller. */
  if (getauxval(AT_SECURE) != 0) return true;
  const char* disable = getenv("STACKD_DISABLE");
  return disable != NULL && disable[0] != '\0' && strcmp(disable, "0") != 0;
}

int stackd_settings_read(struct stackd_settings* settings) {
  if (stackd_is_disabled()) return -ECANCELED;
  const char* dir = getenv("STACKD_DIR");
  if (dir == NULL || dir[0] == '\0') dir = kDefaultDir;
  stackd_copy_string(settings->dir, sizeof(settings->dir), dir);
  struct stackd_text path = stackd_text_in(settings->socket_path, sizeof(settings->socket_path));
  stackd_put(&path, dir);
  stackd_put(&path, "/" STACKD_SOCKET_NAME);
  read_place(settings);
  const int first = first_free_signal();
  settings->dump_signal = first;
  const char* text = read_variable("STACKD_SIGNAL");
  char* end;
  if (text != NULL) {
    long number = strtol(text, &end, 10);
    if (*end != '\0' || number < first || number > 64) return -EINVAL;
    settings->dump_signal = (int)number;
  }
  settings->daemon_uid = STACKD_USUAL_DAEMON;
  text = read_variable("STACKD_DAEMON_UID");
  if (text != NULL && strcmp(text, "any") == 0) {
    settings->daemon_uid = STACKD_ANY_DAEMON;
  } else if (text != NULL) {
    settings->daemon_uid = strtol(text, &end, 10);
    if (*end != '\0' || settings->daemon_uid < 0 || settings->daemon_uid >= UINT32_MAX) return -EINVAL;
  }
  text = read_variable("STACKD_SHARE");
  int error = read_share(text, &settings->share);
  /* Where any listener is the daemon, all of the memory is for none that was not meant. */
  settings->shares_as_needed = text == NULL && settings->daemon_uid != STACKD_ANY_DAEMON;
  if (error != 0) return error;
  settings->crash_hold_ns = DEFAULT_HOLD_MS * NS_PER_MS;
  text = read_variable("STACKD_CRASH_HOLD_MS");
  if (text != NULL) {
    long hold_ms = strtol(text, &end, 10);
    if (*end != '\0' || hold_ms < 0 || hold_ms > MAX_HOLD_MS) return -EINVAL;
    settings->crash_hold_ns = (uint64_t)hold_ms * NS_PER_MS;
  }
  const char* dumps = read_variable("STACKD_SECCOMP_DUMPS");
  settings->dumps_under_filter = dumps != NULL && strcmp(dumps, "0") != 0;
  return read_crash_signals(read_variable("STACKD_CRASH_SIGNALS"), &settings->crash_signals);
}

void stackd_process_files_open(struct stackd_process_files* files) {
  if (stackd_own_fd_get(&files->mem) < 0) {
    files->mem = stackd_own_fd_take(stackd_open("/proc/self/mem", O_RDONLY | O_CLOEXEC), STACKD_FD_PROC);
  }
  stackd_read_memory_by(&files->mem);
  if (stackd_own_fd_get(&files->maps) < 0) {
    files->maps = stackd_own_fd_take(stackd_open("/proc/self/maps", O_RDONLY | O_CLOEXEC), STACKD_FD_PROC);
  }
}

void stackd_process_files_close(struct stackd_process_files* files) {
  stackd_own_fd_close(&files->mem);
  stackd_own_fd_close(&files->maps);
}

/* The start of a file, NUL-terminated; "" if it cannot be read. */
static void read_start(const char* path, char* text, size_t size_bytes) {
  text[0] = '\0';
  int fd = stackd_own_fd_hold(stackd_open(path, O_RDONLY | O_CLOEXEC), STACKD_FD_PROC);
  if (fd < 0) return;
  ssize_t got = stackd_read(fd, text, size_bytes - 1);
  stackd_own_fd_drop(fd);
  text[got > 0 ? got : 0] = '\0';
}

/* Field 22 of /proc/self/stat; the fields before the last ')' may hold anything. */
static uint64_t start_ticks(void) {
  char text[1024];
  read_start("/proc/self/stat", text, sizeof(text));
  const char* at = strrchr(text, ')');
  if (at == NULL) return 0;
  for (int field = 2; field < 22; field++) {
    at = strchr(at + 1, ' ');
    if (at == NULL) return 0;
  }
  return stackd_take_number(&at, 10);
}

bool stackd_process_has_filter(void) {
  char text[4096];
  read_start("/proc/thread-self/status", text, sizeof(text));
  const char* at = strstr(text, "\nSeccomp:\t");
  return at != NULL && at[strlen("\nSeccomp:\t")] != '0';
}

static void describe_process(struct stackd_hello* hello) {
  hello->pid = stackd_getpid();
  hello->uid = (int32_t)stackd_syscall6(SYS_geteuid, 0, 0, 0, 0, 0, 0);
  struct utsname names;
  if (stackd_syscall6(SYS_uname, (long)&names, 0, 0, 0, 0, 0) == 0) {
    stackd_copy_string(hello->hostname, sizeof(hello->hostname), names.nodename);
  }
}

static void describe_program(struct stackd_hello* hello) {
  ssize_t length = stackd_readlink("/proc/self/exe", hello->exe, sizeof(hello->exe) - 1);
  hello->exe[length > 0 ? length : 0] = '\0';
}

void stackd_process_describe(struct stackd_hello* hello) {
  describe_process(hello);
  hello->start_ticks = start_ticks();
  read_start("/proc/self/cmdline", hello->argv0, sizeof(hello->argv0));
  describe_program(hello);
}

void stackd_process_describe_briefly(const struct stackd_hello* before, struct stackd_hello* hello) {
  describe_process(hello);
  if (before != NULL) {
    memcpy(hello->argv0, before->argv0, sizeof(hello->argv0));
    memcpy(hello->exe, before->exe, sizeof(hello->exe));
    return;
  }
  stackd_copy_string(hello->argv0, sizeof(hello->argv0), program_invocation_name);
  describe_program(hello);
}
