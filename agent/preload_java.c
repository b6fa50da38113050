/* libstackd_agent.so as an agent of a Java VM (-agentpath:/path/libstackd_agent.so) and as the native side of
 * dev.stackd.Stackd (agent/java).
 *
 * The library's constructor has installed the agent by the time anything here is called. What is left to do is to have the
 * VM say when its heap is exhausted: the thread that could not allocate still stands where it tried, and the program may
 * well go on, or end without a signal.
 *
 * Of JNI and JVMTI only what is called stands here, by its number in the function tables: these numbers are part of both
 * specifications (JNI 10 "Interface Function Table", JVMTI "Function Index") and never change. No JDK is needed to build.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/install.h"
#include "agent/syscalls.h"
#include "stackd/agent.h"

#define EXPORT __attribute__((visibility("default")))

/* A pointer to a table of functions, which is how both interfaces hand out themselves. */
typedef void* const* table_t;
typedef const table_t* env_t;

#define JAVA_VM_GET_ENV 6
#define JNI_GET_STRING_UTF_CHARS 169
#define JNI_RELEASE_STRING_UTF_CHARS 170
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

/* --- The agent of a VM --- */

static void on_resource_exhausted(env_t jvmti, env_t jni, int32_t flags, const void* reserved, const char* description) {
  (void)jvmti, (void)jni, (void)flags, (void)reserved, (void)description;
  static _Atomic uint64_t last_ns;
  uint64_t now = stackd_clock_ns(CLOCK_MONOTONIC), last = atomic_load(&last_ns);
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
  if (stackd_taken_signal() != 0) ask_for_events(vm);
  return 0;
}

EXPORT int32_t Agent_OnAttach(env_t vm, char* options, void* reserved) { return Agent_OnLoad(vm, options, reserved); }

/* --- dev.stackd.Stackd --- */

static const char* text_of(env_t jni, void* string) {
  const char* (*get)(env_t, void*, uint8_t*) =
      (const char* (*)(env_t, void*, uint8_t*))function_of(jni, JNI_GET_STRING_UTF_CHARS);
  return string != NULL ? get(jni, string, NULL) : NULL;
}

static void release(env_t jni, void* string, const char* text) {
  void (*give_back)(env_t, void*, const char*) =
      (void (*)(env_t, void*, const char*))function_of(jni, JNI_RELEASE_STRING_UTF_CHARS);
  if (text != NULL) give_back(jni, string, text);
}

EXPORT void Java_dev_stackd_Stackd_isInstalled0(env_t jni, void* class) { (void)jni, (void)class; }

EXPORT int32_t Java_dev_stackd_Stackd_dumpNow0(env_t jni, void* class, int32_t timeout_ms) {
  (void)jni, (void)class;
  return stackd_dump_now(timeout_ms);
}

EXPORT int32_t Java_dev_stackd_Stackd_setProcessName0(env_t jni, void* class, void* name) {
  (void)class;
  const char* text = text_of(jni, name);
  int error = stackd_set_process_name(text);
  release(jni, name, text);
  return error;
}

EXPORT int64_t Java_dev_stackd_Stackd_registerHeartbeat0(env_t jni, void* class, void* name, int32_t limit_ms) {
  (void)class;
  const char* text = text_of(jni, name);
  stackd_heartbeat_t* heartbeat = stackd_heartbeat_register(text != NULL ? text : "", (unsigned)limit_ms);
  release(jni, name, text);
  return (int64_t)(intptr_t)heartbeat;
}

/* The class gives back what it got, and only once: its heartbeats are closed at most once. */
static stackd_heartbeat_t* heartbeat_of(int64_t handle) { return (stackd_heartbeat_t*)(intptr_t)handle; }

EXPORT void Java_dev_stackd_Stackd_beat0(env_t jni, void* class, int64_t handle) {
  (void)jni, (void)class;
  stackd_beat(heartbeat_of(handle));
}

EXPORT void Java_dev_stackd_Stackd_suspendHeartbeat0(env_t jni, void* class, int64_t handle) {
  (void)jni, (void)class;
  stackd_heartbeat_suspend(heartbeat_of(handle));
}

EXPORT void Java_dev_stackd_Stackd_unregisterHeartbeat0(env_t jni, void* class, int64_t handle) {
  (void)jni, (void)class;
  stackd_heartbeat_unregister(heartbeat_of(handle));
}
