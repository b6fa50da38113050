#include "agent/runtimes/v8/v8_walk.h"

/* The instance type that a map stands for; -1 if it is none. */
STACKD_HANDLER static int32_t type_of_map(struct stackd_v8_walk* walk, uint64_t map) {
  if (!stackd_v8_is_heap_object(map)) return -1;
  uint32_t slot = (uint32_t)(map >> 3) % STACKD_V8_KNOWN_MAPS;
  if (walk->known_maps[slot] == map) return walk->known_types[slot];
  uint16_t type;
  if (!stackd_managed_read(walk->thread, map - 1 + walk->layout->map_type, &type, sizeof(type))) return -1;
  walk->known_maps[slot] = map;
  walk->known_types[slot] = type;
  return type;
}

int32_t stackd_v8_read_heap_object(struct stackd_v8_walk* walk, uint64_t* object, uint64_t* words, uint32_t count) {
  if (!stackd_v8_is_heap_object(*object)) return -1;
  if (!stackd_managed_read(walk->thread, *object - 1, words, 8 * count)) return -1;
  if ((words[0] & 1) == 0 && words[0] != 0) {
    *object = words[0] | 1;
    if (!stackd_managed_read(walk->thread, *object - 1, words, 8 * count)) return -1;
  }
  return type_of_map(walk, words[0]);
}

int32_t stackd_v8_type_of(struct stackd_v8_walk* walk, uint64_t* object) {
  uint64_t map;
  return stackd_v8_read_heap_object(walk, object, &map, 1);
}
