/* The file in which a runtime of this process names the code that it has made (tools/perf/Documentation/jit-interface.txt
 * of Linux). The daemon may have it. Helper thread only: NOT SIGNAL-SAFE (opens a file). */
#ifndef STACKD_PERF_MAP_H_
#define STACKD_PERF_MAP_H_

#include <stdbool.h>

/* Whether this is the path of the perf map of this process: /tmp/perf-PID.map, by its pid in its own namespace. */
bool stackd_perf_map_is_at(const char* path);

/* Opens it for reading: an fd, which the caller drops (private_fd.h), or a negative errno. It is -EPERM unless it is a
 * regular file of the process's user that has no other name: every user may write to /tmp. */
int stackd_perf_map_open(void);

#endif /* STACKD_PERF_MAP_H_ */
