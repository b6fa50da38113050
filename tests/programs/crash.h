/* What the programs that crash share. */
#pragma once

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/programs/victim.h"

static inline int crash_file_has(const char* path, const char* text) {
  char line[512];
  int found = 0;
  FILE* file = fopen(path, "re");
  if (file == NULL) return 0;
  while (!found && fgets(line, sizeof line, file) != NULL) found = strstr(line, text) != NULL;
  fclose(file);
  return found;
}

/* The agent's own thread in this process, or 0. */
static inline pid_t crash_agent_thread(void) {
  pid_t found = 0;
  DIR* tasks = opendir("/proc/self/task");
  for (struct dirent* entry; found == 0 && (entry = readdir(tasks)) != NULL;) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    if (crash_file_has(path, "stackd-agent")) found = (pid_t)atoi(entry->d_name);
  }
  closedir(tasks);
  return found;
}

#define CRASH_FIRST_STACK_BYTES ((size_t)64 << 10)

static inline void* crash_do_nothing(void* nothing) { return nothing; }

/* Returns when the agent in this process is registered. It has mapped the ring that the daemon gave it, and waits for what
 * the daemon may want. */
static inline void crash_await_ring(void) {
  /* It comes with the first thread, whose stack is too small to be used again: what lies below that is the agent's. */
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, CRASH_FIRST_STACK_BYTES);
  pthread_t first;
  victim_check(pthread_create(&first, &attributes, crash_do_nothing, NULL) == 0, "pthread_create");
  pthread_attr_destroy(&attributes);
  pthread_join(first, NULL);
  while (!crash_file_has("/proc/self/maps", "/memfd:stackd-ring")) usleep(500);
  victim_await_asleep(crash_agent_thread());
}

/* Words that all of them know: "await" waits until the agent is registered, "told" for a line on stdin. */
static inline void crash_heed(const char* word) {
  if (strcmp(word, "await") == 0) crash_await_ring();
  if (strcmp(word, "told") == 0) {
    victim_ready();
    char byte;
    victim_check(read(STDIN_FILENO, &byte, 1) == 1, "nobody said when");
  }
}
