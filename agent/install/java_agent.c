/* libstackd_java.so: what -agentpath of a Java VM wants. It needs libstackd_agent.so, which lies beside it or was
 * preloaded, and whose constructor has installed the agent by the time anything here is called. It asks the VM to say when
 * its heap is exhausted. The thread that could not allocate still stands where it tried, and the program may well go on, or
 * end without a signal.
 *
 * A library of its own, since the names that the VM wants are the same in every agent. In a preloaded library they would
 * stand before those of all others, and an agent that calls its own by name would call ours.
 *
 * Declares only what it calls of JNI and JVMTI, by its number in the function tables. These numbers are part of both
 * specifications and never change (JNI 10 "Interface Function Table", JVMTI "Function Index"). No JDK is needed to build.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stackd/agent.h"

#define EXPORT __attribute__((visibility("default")))

/* A pointer to a table of functions, which is how both interfaces hand out themselves. */
typedef void* const* table_t;
typedef const table_t* env_t;

#define JAVA_VM_GET_ENV 6
/* JVMTI counts from 1. */
#define JVMTI_SET_EVENT_NOTIFICATION_MODE (2 - 1)
#define JVMTI_SET_EVENT_CALLBACKS (122 - 1)
#define JVMTI_ADD_CAPABILITIES (142 - 1)

#define JVMTI_VERSION_1_1 0x30010100
#define JVMTI_ENABLE 1
#define FIRST_EVENT 50
#define RESOURCE_EXHAUSTED 80
#define EVENTS (RESOURCE_EXHAUSTED - FIRST_EVENT + 1)
/* Bit of can_generate_resource_exhaustion_heap_events among the 128 capabilities. */
#define CAPABILITY_HEAP_EVENTS 39

/* A heap that is exhausted is so again and again. */
#define EXHAUSTED_PAUSE_NS (60ull * 1000000000ull)
#define EXHAUSTED_WAIT_MS 2000

static void* function_of(env_t env, int number) { return (*env)[number]; }

static void on_resource_exhausted(env_t jvmti, env_t jni, int32_t flags, const void* reserved, const char* description) {
  (void)jvmti, (void)jni, (void)flags, (void)reserved, (void)description;
  static _Atomic uint64_t last_ns;
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  uint64_t now = (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec, last = atomic_load(&last_ns);
  if (last != 0 && now - last < EXHAUSTED_PAUSE_NS) return;
  if (atomic_compare_exchange_strong(&last_ns, &last, now)) stackd_dump_now(EXHAUSTED_WAIT_MS);
}

/* Whatever the VM cannot do is left out: an agent that fails to load would end the VM. */
static void ask_for_events(env_t vm) {
  int32_t (*get_env)(env_t, env_t*, int32_t) = (int32_t (*)(env_t, env_t*, int32_t))function_of(vm, JAVA_VM_GET_ENV);
  env_t jvmti = NULL;
  if (get_env(vm, &jvmti, JVMTI_VERSION_1_1) != 0 || jvmti == NULL) return;
  uint8_t capabilities[16] = {0};
  capabilities[CAPABILITY_HEAP_EVENTS / 8] = 1u << (CAPABILITY_HEAP_EVENTS % 8);
  int32_t (*add_capabilities)(env_t, const void*) =
      (int32_t (*)(env_t, const void*))function_of(jvmti, JVMTI_ADD_CAPABILITIES);
  if (add_capabilities(jvmti, capabilities) != 0) return;
  void* callbacks[EVENTS] = {NULL};
  callbacks[RESOURCE_EXHAUSTED - FIRST_EVENT] = (void*)on_resource_exhausted;
  int32_t (*set_callbacks)(env_t, const void*, int32_t) =
      (int32_t (*)(env_t, const void*, int32_t))function_of(jvmti, JVMTI_SET_EVENT_CALLBACKS);
  int32_t (*set_mode)(env_t, int32_t, int32_t, void*, ...) =
      (int32_t (*)(env_t, int32_t, int32_t, void*, ...))function_of(jvmti, JVMTI_SET_EVENT_NOTIFICATION_MODE);
  if (set_callbacks(jvmti, callbacks, sizeof(callbacks)) == 0) set_mode(jvmti, JVMTI_ENABLE, RESOURCE_EXHAUSTED, NULL);
}

EXPORT int32_t Agent_OnLoad(env_t vm, char* options, void* reserved) {
  (void)options, (void)reserved;
  const char* disabled = getenv("STACKD_DISABLE");
  if (disabled == NULL || disabled[0] == '\0' || strcmp(disabled, "0") == 0) ask_for_events(vm);
  return 0;
}

EXPORT int32_t Agent_OnAttach(env_t vm, char* options, void* reserved) { return Agent_OnLoad(vm, options, reserved); }
