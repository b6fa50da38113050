/* Maps MIB MiB of code that has no file any more, under COUNT names: what a daemon copies from memory to have names. The
 * code is this program's own, and then zeros. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_image(int number, size_t size_bytes) {
  char name[32];
  snprintf(name, sizeof name, "image-%d", number);
  int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int image = memfd_create(name, MFD_CLOEXEC);
  struct stat status;
  if (program < 0 || image < 0 || fstat(program, &status) != 0) return -1;
  for (off_t done = 0; done < status.st_size;) {
    if (sendfile(image, program, &done, (size_t)(status.st_size - done)) <= 0) return -1;
  }
  if (ftruncate(image, (off_t)size_bytes) != 0) return -1;
  void* code = mmap(NULL, size_bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, image, 0);
  close(image);
  close(program);
  return code == MAP_FAILED ? -1 : 0;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  for (int i = 0; i < atoi(argv[2]); i++) {
    if (map_image(i, (size_t)atoi(argv[1]) << 20) != 0) return 1;
  }
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
