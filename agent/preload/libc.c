/* One library for every C library: glibc from 2.17 on, and musl. A function that one of them lacks, has under a younger
 * version, or keeps in another library than libc is defined here in its place. Others do not see it.
 *
 * Before 2.34 glibc kept threads and dlsym() in libraries of their own. The agent does not ask for those: a container that
 * has only what its program needs would not start the program for lack of them. What is there is found; in a program
 * without threads the agent has none either, and its crashes go to the spool folder.
 */
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "agent/maps/loaded_object.h"
#include "agent/preload/preload.h"

#define HIDDEN __attribute__((visibility("hidden")))

/* --- Finding functions --- */

/* The version that all of them have; NULL where a glibc before 2.34 has not loaded libdl. */
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#pragma weak dlsym

struct search {
  const char* name;
  bool all;    /* else only what comes after this library */
  bool behind; /* this library was seen */
  uint64_t found;
};

static const char kHere;

static bool holds(const struct dl_phdr_info* object, uint64_t address) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr)* segment = &object->dlpi_phdr[i];
    uint64_t start = object->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && address >= start && address - start < segment->p_memsz) return true;
  }
  return false;
}

static int look_in(struct dl_phdr_info* object, size_t size_bytes, void* value) {
  (void)size_bytes;
  struct search* search = value;
  if (!search->behind && holds(object, (uint64_t)&kHere)) {
    search->behind = true;
    return 0;
  }
  if (!search->behind && !search->all) return 0;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr)* segment = &object->dlpi_phdr[i];
    struct stackd_loaded_object loaded;
    if (segment->p_type != PT_LOAD || segment->p_offset != 0) continue;
    if (stackd_loaded_object_at(object->dlpi_addr + segment->p_vaddr, &loaded)) {
      search->found = stackd_loaded_symbol(&loaded, search->name).address;
    }
    return search->found != 0;
  }
  return 0;
}

static void* find(const char* name, bool all) {
  if (dlsym != NULL) return dlsym(all ? RTLD_DEFAULT : RTLD_NEXT, name);
  struct search search = {.name = name, .all = all};
  dl_iterate_phdr(look_in, &search);
  return (void*)search.found;
}

static int is_here(struct dl_phdr_info* object, size_t size_bytes, void* address) {
  (void)size_bytes;
  return holds(object, (uint64_t)&kHere) && holds(object, (uint64_t)address);
}

void* stackd_preload_next(const char* name) {
  void* found = find(name, false);
  if (found != NULL) return found;
  /* Where another library brought the agent it may stand behind the C library: then no call reaches ours. */
  void* first = find(name, true);
  return first != NULL && dl_iterate_phdr(is_here, first) == 0 ? first : NULL;
}

void* stackd_preload_any(const char* name) { return find(name, true); }

void* stackd_preload_private(const char* name) {
  void* (*find_version)(void*, const char*, const char*) = (void* (*)(void*, const char*, const char*))find("dlvsym", true);
  return find_version != NULL ? find_version(RTLD_DEFAULT, name, "GLIBC_PRIVATE") : find(name, true);
}

/* --- Threads --- */

#define THREAD_FUNCTION(name) ((__typeof__(name)*)find(#name, true))

/* As where no keys are left, no threads can be made. */
#define CALL_IF_FOUND(name, ...)                              \
  do {                                                        \
    static __typeof__(name)* function;                        \
    if (function == NULL) function = THREAD_FUNCTION(name);   \
    return function != NULL ? function(__VA_ARGS__) : EAGAIN; \
  } while (0)

HIDDEN int pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) {
  CALL_IF_FOUND(pthread_key_create, key, destructor);
}

HIDDEN int pthread_key_delete(pthread_key_t key) { CALL_IF_FOUND(pthread_key_delete, key); }

HIDDEN int pthread_setspecific(pthread_key_t key, const void* value) { CALL_IF_FOUND(pthread_setspecific, key, value); }

HIDDEN void* pthread_getspecific(pthread_key_t key) {
  static __typeof__(pthread_getspecific)* function;
  if (function == NULL) function = THREAD_FUNCTION(pthread_getspecific);
  return function != NULL ? function(key) : NULL;
}

HIDDEN int pthread_attr_setstacksize(pthread_attr_t* attributes, size_t size_bytes) {
  CALL_IF_FOUND(pthread_attr_setstacksize, attributes, size_bytes);
}

extern void* __dso_handle HIDDEN;

HIDDEN int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  int (*glibc)(void (*)(void), void (*)(void), void (*)(void), void*) =
      (int (*)(void (*)(void), void (*)(void), void (*)(void), void*))find("__register_atfork", true);
  if (glibc != NULL) return glibc(prepare, parent, child, &__dso_handle);
  CALL_IF_FOUND(pthread_atfork, prepare, parent, child);
}

/* --- What is only a system call --- */

HIDDEN int fstatat(int folder, const char* restrict path, struct stat* restrict status, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, status, flags);
}

HIDDEN ssize_t getrandom(void* buffer, size_t size_bytes, unsigned flags) {
  return syscall(SYS_getrandom, buffer, size_bytes, flags);
}
