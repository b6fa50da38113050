/* embeds LIBPYTHON PROGRAM: a program that loads Python for itself alone (RTLD_LOCAL), when its stdin says so. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void* find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol != NULL) return symbol;
  fprintf(stderr, "%s\n", dlerror());
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  puts("ready");
  fflush(stdout);
  getchar();
  void* python = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (python == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  ((void (*)(void))find(python, "Py_Initialize"))();
  return ((int (*)(const char*))find(python, "PyRun_SimpleString"))(argv[2]);
}
