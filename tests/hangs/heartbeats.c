/* heartbeats LIMIT_MS: an event loop with a heartbeat, which does as the lines of standard input say:
 *
 *     beat       beats every 20 ms (so it begins)
 *     pause      waits for the next line without a beat: a loop that is stuck
 *     suspend    says that it is idle, then waits for the next line
 *     unregister takes its promise back, then waits for the next line
 *     deadlock   each thread of the program, the one that reads these lines as well, waits for one of the others
 *
 * The answer to each is a line with the time of CLOCK_REALTIME in nanoseconds. What was told is done, and unless it was to
 * beat there was no beat after it. The agent is the preloaded one: found as a program finds it that can do without.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

#include "agent/include/stackd/agent.h"
#include "tests/hangs/hang.h"

#define PERIOD_US 20000

static stackd_heartbeat_t* (*heartbeat_register)(const char*, unsigned);
static void (*beat)(stackd_heartbeat_t*);
static void (*heartbeat_suspend)(stackd_heartbeat_t*);
static void (*heartbeat_unregister)(stackd_heartbeat_t*);

static void* agent_function(const char* name) {
  void* function = dlsym(RTLD_DEFAULT, name);
  victim_check(function != NULL, name);
  return function;
}

static void find_agent(void) {
  *(void**)&heartbeat_register = agent_function("stackd_heartbeat_register");
  *(void**)&beat = agent_function("stackd_beat");
  *(void**)&heartbeat_suspend = agent_function("stackd_heartbeat_suspend");
  *(void**)&heartbeat_unregister = agent_function("stackd_heartbeat_unregister");
}

static pthread_mutex_t loop_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t main_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned limit_ms;
static pthread_barrier_t answered; /* the loop has done what main told it */
static char order[32] = "beat";
static atomic_int is_new_order;

static void answer(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  char line[32];
  int bytes = snprintf(line, sizeof line, "%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
  victim_check(write(STDOUT_FILENO, line, (size_t)bytes) == bytes, "write");
  pthread_barrier_wait(&answered);
}

static void await_order(void) {
  while (!atomic_load(&is_new_order)) usleep(PERIOD_US);
}

VICTIM_NOINLINE static void handle_request(void) {
  pthread_mutex_lock(&main_lock);
  VICTIM_NOT_A_TAIL_CALL();
}

VICTIM_NOINLINE static void* event_loop(void* unused) {
  stackd_heartbeat_t* heartbeat = heartbeat_register("event-loop", limit_ms);
  pthread_mutex_lock(&loop_lock);
  for (beat(heartbeat);; usleep(PERIOD_US)) {
    if (!atomic_exchange(&is_new_order, 0)) {
      beat(heartbeat);
      continue;
    }
    char now[sizeof order];
    memcpy(now, order, sizeof now);
    if (strcmp(now, "beat") == 0) beat(heartbeat);
    if (strcmp(now, "suspend") == 0) heartbeat_suspend(heartbeat);
    if (strcmp(now, "unregister") == 0) heartbeat_unregister(heartbeat);
    answer();
    if (strcmp(now, "deadlock") == 0) handle_request();
    if (strcmp(now, "beat") != 0) await_order();
  }
  return unused;
}

VICTIM_NOINLINE static void shut_down(void) {
  pthread_mutex_lock(&loop_lock);
  VICTIM_NOT_A_TAIL_CALL();
}

int main(int argc, char** argv) {
  victim_check(argc == 2, "usage: heartbeats LIMIT_MS");
  limit_ms = (unsigned)atoi(argv[1]);
  find_agent();
  pthread_barrier_init(&answered, NULL, 2);
  pthread_mutex_lock(&main_lock);
  hang_thread("event-loop", event_loop, NULL);
  hang_ready();
  while (fgets(order, sizeof order, stdin) != NULL) {
    order[strcspn(order, "\n")] = 0;
    atomic_store(&is_new_order, 1);
    pthread_barrier_wait(&answered);
    if (strcmp(order, "deadlock") == 0) shut_down();
  }
}
