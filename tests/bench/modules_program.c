/* modules_program FOLDER COUNT: loads FOLDER/0.so and so on; says "ready" when it has, and stays. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int i = 0; i < atoi(argv[2]); i++) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/%d.so", argv[1], i);
    if (dlopen(path, RTLD_NOW) == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
  }
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
