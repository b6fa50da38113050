/* The native side of dev.stackd.Stackd (agent/java). Of JNI only what is called stands here, by its number in the table of
 * functions: part of the specification (JNI 10 "Interface Function Table"). No JDK is needed to build. */
#include <stddef.h>
#include <stdint.h>

#include "stackd/agent.h"

#define EXPORT __attribute__((visibility("default")))

/* A pointer to a table of functions, which is how the interface hands out itself. */
typedef void* const* table_t;
typedef const table_t* env_t;

#define JNI_GET_STRING_UTF_CHARS 169
#define JNI_RELEASE_STRING_UTF_CHARS 170

static void* function_of(env_t env, int number) { return (*env)[number]; }

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
