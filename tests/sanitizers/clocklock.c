/* pthread_mutex_clocklock() by calls that ThreadSanitizer of GCC 12 knows. It takes no note of this one, by which
 * std::timed_mutex waits: it would report each access that such a lock guards as a race. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#define NS_PER_S 1000000000ll

static long long ns_of(const struct timespec* time) { return time->tv_sec * NS_PER_S + time->tv_nsec; }

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* deadline) {
  struct timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  const long long end_ns = ns_of(&real) + ns_of(deadline) - ns_of(&now);
  const struct timespec end = {end_ns / NS_PER_S, end_ns % NS_PER_S};
  return pthread_mutex_timedlock(mutex, &end);
}
