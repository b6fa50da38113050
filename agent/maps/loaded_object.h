/* Symbols of the ELF objects that are mapped into this process, read as the kernel and the loader left them.
 *
 * Not dlsym(): that waits for the loader's lock, which a process that hangs in a constructor of a library holds. Nor does
 * it see what was loaded with RTLD_LOCAL. NOT SIGNAL-SAFE (reads files), but for the structures. */
#ifndef STACKD_LOADED_OBJECT_H_
#define STACKD_LOADED_OBJECT_H_

#include <stdbool.h>
#include <stdint.h>

/* All addresses are in this process. */
struct stackd_loaded_object {
  uint64_t start;    /* of its ELF header */
  uint64_t bias;     /* what is added to the addresses in its symbols */
  uint64_t hash;     /* DT_GNU_HASH; 0: it has none */
  uint64_t old_hash; /* DT_HASH; 0: it has none */
  uint64_t symbols;
  uint64_t strings;
};

struct stackd_loaded_symbol {
  uint64_t address; /* 0: it has none of this name */
  uint64_t size_bytes;
};

/* What the object exports under this name: functions and variables, no thread-local ones. */
struct stackd_loaded_symbol stackd_loaded_symbol(const struct stackd_loaded_object* object, const char* name);

/* Whether the object has a note of this name and type in a segment that is mapped. */
bool stackd_loaded_object_has_note(const struct stackd_loaded_object* object, const char* name, uint32_t type);

/* False if no ELF object with exported symbols begins at this address. */
bool stackd_loaded_object_at(uint64_t start, struct stackd_loaded_object* object);

/* Calls `visit` for each mapped file that is an ELF object with exported symbols. `maps_fd` is /proc/self/maps. */
void stackd_loaded_objects(int maps_fd, void (*visit)(const struct stackd_loaded_object* object));

#endif /* STACKD_LOADED_OBJECT_H_ */
