/* Two threads that sleep, in a program that loads the library it is told to when it is asked: "load", answered by "loaded".
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void* sleep_for_ever(void* unused) {
  for (;;) pause();
  return unused;
}

int main(int argc, char** argv) {
  pthread_t thread;
  if (argc < 2 || pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0) return 2;
  puts("ready");
  fflush(stdout);
  char line[64];
  while (fgets(line, sizeof line, stdin) != NULL) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    puts(library != NULL ? "loaded" : dlerror());
    fflush(stdout);
  }
  return 0;
}
