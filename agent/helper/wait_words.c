#include "agent/helper/wait_words.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/dump/procfs_task.h"
#include "agent/signals/sigterm.h"
#include "agent/sys/kernel.h"
#include "agent/sys/private_fd.h"

/* Headers of Debian 10 and musl lack it. */
#define LOCK_PI2 13u

#define MAX_TID (1 << 22)
#define MAX_SELECTED 1024u
#define LOCKED_WITH_WAITERS 2u

/* glibc's struct pthread begins with its own address, twice, and has the tid at 720 from 2.17 to 2.43. */
#define BLOCK_ALIGNMENT 64u
#define BLOCK_TID 720u
#define MAX_BLOCK_BYTES 2432u

static long read_some(uint64_t avma, void* out, size_t size_bytes) {
  return stackd_read_memory(stackd_getpid(), avma, out, size_bytes);
}

static bool read_all(uint64_t avma, void* out, size_t size_bytes) {
  return read_some(avma, out, size_bytes) == (long)size_bytes;
}

static bool knows(const struct stackd_syscall* call, unsigned argument) { return (call->known >> argument & 1) != 0; }

static bool waits_on(const struct stackd_syscall* call, uint64_t futex_avma) {
  if (call->number != SYS_futex || !knows(call, 0) || !knows(call, 1) || call->arguments[0] != futex_avma) return false;
  switch ((uint32_t)call->arguments[1] & (uint32_t)FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_LOCK_PI:
    case LOCK_PI2:
      return true;
    default:
      return false;
  }
}

/* --- Locks --- */

/* The tid of the thread whose control block lies there; 0 if none does. */
static int32_t tid_of_block(uint64_t block_avma) {
  uint64_t words[3];
  int32_t tid;
  if (block_avma == 0 || block_avma % BLOCK_ALIGNMENT != 0 || !read_all(block_avma, words, sizeof(words))) return 0;
  if (words[0] != block_avma || words[2] != block_avma || !read_all(block_avma + BLOCK_TID, &tid, sizeof(tid))) return 0;
  return tid > 0 && tid <= MAX_TID ? tid : 0;
}

/* The word lies in the block: a thread that joins another waits for a word of that one's. */
static int32_t tid_of_block_around(uint64_t avma) {
  uint64_t words[MAX_BLOCK_BYTES / sizeof(uint64_t)];
  const uint64_t end = (avma & ~(uint64_t)(BLOCK_ALIGNMENT - 1)) + BLOCK_ALIGNMENT;
  if (end < sizeof(words)) return 0;
  const uint64_t first = end - sizeof(words);
  long got = read_some(first, words, sizeof(words));
  for (long at = 0; at + BLOCK_ALIGNMENT <= got; at += BLOCK_ALIGNMENT) {
    const uint64_t block_avma = first + (uint64_t)at;
    if (words[at / 8] == block_avma && words[at / 8 + 2] == block_avma) return tid_of_block(block_avma);
  }
  return 0;
}

/* glibc's _IO_lock_t: the word, how often its owner has it, and the owner's control block. */
static int32_t owner_of_stdio_lock(uint64_t avma) {
  struct {
    uint32_t lock;
    uint32_t count;
    uint64_t owner_avma;
  } lock;
  if (avma % 8 != 0 || !read_all(avma, &lock, sizeof(lock))) return 0;
  bool is_held = lock.lock == LOCKED_WITH_WAITERS && lock.count <= MAX_TID;
  return is_held ? tid_of_block(lock.owner_avma) : 0;
}

static int read_lock(uint64_t avma, struct stackd_wait_answer* answer) {
  answer->word_offset = avma >= STACKD_LOCK_BYTES_BEFORE ? STACKD_LOCK_BYTES_BEFORE : 0;
  long got = read_some(avma - answer->word_offset, answer->lock, answer->word_offset + STACKD_LOCK_BYTES_FROM);
  if (got < (long)(answer->word_offset + sizeof(uint32_t))) {
    /* At the beginning of a mapping there is nothing before it. */
    answer->word_offset = 0;
    got = read_some(avma, answer->lock, STACKD_LOCK_BYTES_FROM);
  }
  if (got < (long)sizeof(uint32_t)) return -EFAULT;
  answer->count = (uint32_t)got;
  answer->thread_tid = tid_of_block_around(avma);
  answer->stdio_owner_tid = owner_of_stdio_lock(avma);
  return 0;
}

/* --- Tables of fds --- */

static void add_fd(struct stackd_wait_answer* answer, int32_t fd) {
  uint32_t place = 0;
  while (place < answer->count && answer->fds[place] < fd) place++;
  bool is_there = place < answer->count && answer->fds[place] == fd;
  /* The kernel skips those that are negative. */
  if (fd < 0 || is_there || answer->count == STACKD_MAX_TABLE_FDS) return;
  memmove(&answer->fds[place + 1], &answer->fds[place], (answer->count - place) * sizeof(answer->fds[0]));
  answer->fds[place] = fd;
  answer->count++;
}

static void read_poll_table(const struct stackd_syscall* call, struct stackd_wait_answer* answer) {
  struct pollfd entries[STACKD_MAX_TABLE_FDS];
  uint64_t wanted = call->arguments[1] < STACKD_MAX_TABLE_FDS ? call->arguments[1] : STACKD_MAX_TABLE_FDS;
  long got = read_some(call->arguments[0], entries, wanted * sizeof(entries[0]));
  for (long i = 0; i < got / (long)sizeof(entries[0]); i++) add_fd(answer, entries[i].fd);
}

static void read_select_table(const struct stackd_syscall* call, struct stackd_wait_answer* answer) {
  uint64_t any[MAX_SELECTED / 64] = {0};
  uint32_t fd_count = (uint32_t)call->arguments[0] < MAX_SELECTED ? (uint32_t)call->arguments[0] : MAX_SELECTED;
  for (unsigned set = 1; set <= 3; set++) {
    uint64_t words[MAX_SELECTED / 64] = {0};
    if (!knows(call, set) || call->arguments[set] == 0) continue;
    read_some(call->arguments[set], words, (fd_count + 63) / 64 * sizeof(words[0]));
    for (unsigned i = 0; i < MAX_SELECTED / 64; i++) any[i] |= words[i];
  }
  for (uint32_t fd = 0; fd < fd_count; fd++) {
    if ((any[fd / 64] >> fd % 64 & 1) != 0) add_fd(answer, (int32_t)fd);
  }
}

static int read_fd_table(const struct stackd_syscall* call, struct stackd_wait_answer* answer) {
  if ((call->number == SYS_poll || call->number == SYS_ppoll) && knows(call, 0) && knows(call, 1)) {
    read_poll_table(call, answer);
    return 0;
  }
  if ((call->number != SYS_select && call->number != SYS_pselect6) || !knows(call, 0)) return -EAGAIN;
  if ((int32_t)call->arguments[0] >= 0) read_select_table(call, answer);
  return 0;
}

/* --- Files that are locked --- */

static int read_inode(const struct stackd_syscall* call, uint64_t fd, struct stackd_wait_answer* answer) {
  bool is_lock = call->number == SYS_flock || call->number == SYS_fcntl;
  if (!is_lock || !knows(call, 0) || (uint32_t)call->arguments[0] != fd) return -EAGAIN;
  struct stat status;
  int error = stackd_fstat((int)fd, &status);
  answer->number = status.st_ino;
  return error;
}

/* --- Threads --- */

static int read_thread(int task_fd, const struct stackd_wait_question* question, struct stackd_wait_answer* answer) {
  uint32_t tid = (uint32_t)question->tid;
  struct stackd_task_status status;
  int error = stackd_task_read_status(task_fd, tid, &status);
  if (error != 0) return error;
  answer->count = (unsigned char)status.state;
  struct stackd_task_schedstat stats;
  int fd = stackd_task_open_schedstat(task_fd, tid);
  /* Kernels without this file have the thread. */
  if (fd >= 0 && stackd_task_read_schedstat(fd, &stats) == 0) answer->number = stats.run_count;
  if (fd >= 0) stackd_own_fd_drop(fd);
  return 0;
}

/* --- Questions --- */

static int answer_of_thread(int task_fd, const struct stackd_wait_question* question, struct stackd_wait_answer* answer) {
  struct stackd_task_sleep sleep;
  int error = stackd_task_read_sleep(task_fd, (uint32_t)question->tid, &sleep);
  if (error != 0) return error;
  if (question->kind == STACKD_ASK_FD_TABLE) return read_fd_table(&sleep.call, answer);
  if (question->kind == STACKD_ASK_LOCKED_FILE) return read_inode(&sleep.call, question->avma, answer);
  return waits_on(&sleep.call, question->avma) ? read_lock(question->avma, answer) : -EAGAIN;
}

static int answer_to(int task_fd, const struct stackd_wait_question* question, struct stackd_wait_answer* answer) {
  switch (question->kind) {
    case STACKD_ASK_LOCK:
    case STACKD_ASK_FD_TABLE:
    case STACKD_ASK_LOCKED_FILE:
      return task_fd < 0 ? task_fd : answer_of_thread(task_fd, question, answer);
    case STACKD_ASK_THREAD:
      return task_fd < 0 ? task_fd : read_thread(task_fd, question, answer);
    case STACKD_ASK_SIGTERM:
      answer->number = __atomic_load_n(&stackd_sigterm_count, __ATOMIC_RELAXED);
      return 0;
    default:
      return -EINVAL;
  }
}

void stackd_wait_words(const struct stackd_ask_waits* request, struct stackd_wait_words* words) {
  memset(words, 0, sizeof(*words));
  words->header.type = STACKD_MSG_WAIT_WORDS;
  words->header.size_bytes = sizeof(*words);
  words->request_id = request->request_id;
  words->answer_count = request->question_count;
  int task_fd = stackd_task_open();
  for (uint32_t i = 0; i < request->question_count; i++) {
    struct stackd_wait_answer* answer = &words->answers[i];
    int error = answer_to(task_fd, &request->questions[i], answer);
    /* What was read for an answer that is none stays here. */
    if (error != 0) memset(answer, 0, sizeof(*answer));
    answer->error = error;
  }
  if (task_fd >= 0) stackd_own_fd_drop(task_fd);
}
