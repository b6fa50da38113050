/* Says "ready" and waits: the least that a process can do. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
