#include "agent/runtimes/go/go.h"

/* The note that Go's linker puts into each program and library, for its build ID (cmd/link/internal/ld/elf.go). */
#define NOTE_NAME "Go"
#define NOTE_TYPE 4

static bool is_here;

void stackd_go_find(const struct stackd_loaded_object* object) {
  if (!is_here) is_here = stackd_loaded_object_has_note(object, NOTE_NAME, NOTE_TYPE);
}

bool stackd_go_is_here(void) { return is_here; }
