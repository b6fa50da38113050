/* The agent's functions for JavaScript, by Node-API, whose binary interface is the same for all versions of Node.js. Its
 * functions are declared here: not every node comes with their header.
 *
 * There is no agent in here: one library with it per process is enough, and LD_PRELOAD may have loaded that. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "stackd/agent.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct napi_env__* napi_env;
typedef struct napi_value__* napi_value;
typedef struct napi_callback_info__* napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);

extern int napi_get_cb_info(napi_env, napi_callback_info, size_t*, napi_value*, napi_value*, void**);
extern int napi_get_value_string_utf8(napi_env, napi_value, char*, size_t, size_t*);
extern int napi_get_value_uint32(napi_env, napi_value, uint32_t*);
extern int napi_create_int32(napi_env, int32_t, napi_value*);
extern int napi_create_function(napi_env, const char*, size_t, napi_callback, void*, napi_value*);
extern int napi_set_named_property(napi_env, napi_value, const char*, napi_value);

#define MAX_ARGUMENTS 2
#define MAX_TEXT_BYTES 4096
#define MAX_HEARTBEATS 64u
#define NOT_LOADED (-1)
#define BAD_ARGUMENT (-22) /* -EINVAL */

static struct {
  int (*install)(void);
  int (*set_process_name)(const char*);
  int (*name_thread)(const char*);
  int (*dump_now)(int);
  int (*dump_exception)(const char*, int);
  stackd_heartbeat_t* (*heartbeat_register)(const char*, unsigned);
  void (*beat)(stackd_heartbeat_t*);
  void (*suspend)(stackd_heartbeat_t*);
  void (*unregister)(stackd_heartbeat_t*);
} agent;

/* By number: a pointer that has been through JavaScript could be any. Worker threads share the table. */
static stackd_heartbeat_t* heartbeats[MAX_HEARTBEATS];

struct call {
  napi_env env;
  size_t count;
  napi_value arguments[MAX_ARGUMENTS];
};

static struct call begin(napi_env env, napi_callback_info info) {
  struct call call = {env, MAX_ARGUMENTS, {NULL, NULL}};
  if (napi_get_cb_info(env, info, &call.count, call.arguments, NULL, NULL) != 0) call.count = 0;
  return call;
}

static bool text_of(const struct call* call, size_t index, char* text) {
  size_t size;
  return index < call->count &&
         napi_get_value_string_utf8(call->env, call->arguments[index], text, MAX_TEXT_BYTES, &size) == 0;
}

static bool number_of(const struct call* call, size_t index, uint32_t* number) {
  return index < call->count && napi_get_value_uint32(call->env, call->arguments[index], number) == 0;
}

static napi_value result(const struct call* call, int value) {
  napi_value number = NULL;
  napi_create_int32(call->env, value, &number);
  return number;
}

static bool find_agent(void* library) {
  *(void**)&agent.install = dlsym(library, "stackd_install");
  *(void**)&agent.set_process_name = dlsym(library, "stackd_set_process_name");
  *(void**)&agent.name_thread = dlsym(library, "stackd_name_thread");
  *(void**)&agent.dump_now = dlsym(library, "stackd_dump_now");
  *(void**)&agent.dump_exception = dlsym(library, "stackd_dump_exception");
  *(void**)&agent.heartbeat_register = dlsym(library, "stackd_heartbeat_register");
  *(void**)&agent.beat = dlsym(library, "stackd_beat");
  *(void**)&agent.suspend = dlsym(library, "stackd_heartbeat_suspend");
  *(void**)&agent.unregister = dlsym(library, "stackd_heartbeat_unregister");
  return agent.install != NULL && agent.set_process_name != NULL && agent.name_thread != NULL && agent.dump_now != NULL &&
         agent.dump_exception != NULL && agent.heartbeat_register != NULL && agent.beat != NULL && agent.suspend != NULL &&
         agent.unregister != NULL;
}

/* install(path of the library): what stackd_install() gives. */
static napi_value install(napi_env env, napi_callback_info info) {
  struct call call = begin(env, info);
  char path[MAX_TEXT_BYTES];
  if (!text_of(&call, 0, path)) return result(&call, BAD_ARGUMENT);
  if (!find_agent(RTLD_DEFAULT)) {
    void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL || !find_agent(library)) {
      memset(&agent, 0, sizeof(agent));
      return result(&call, NOT_LOADED);
    }
  }
  return result(&call, agent.install());
}

static napi_value with_text(napi_env env, napi_callback_info info, int (*const* function)(const char*)) {
  struct call call = begin(env, info);
  char text[MAX_TEXT_BYTES];
  if (*function == NULL) return result(&call, NOT_LOADED);
  return result(&call, text_of(&call, 0, text) ? (*function)(text) : BAD_ARGUMENT);
}

static napi_value name_thread(napi_env env, napi_callback_info info) { return with_text(env, info, &agent.name_thread); }

static napi_value name_process(napi_env env, napi_callback_info info) {
  return with_text(env, info, &agent.set_process_name);
}

/* dumpNow(timeout in ms) */
static napi_value dump_now(napi_env env, napi_callback_info info) {
  struct call call = begin(env, info);
  uint32_t timeout_ms;
  if (agent.dump_now == NULL) return result(&call, NOT_LOADED);
  return result(&call, number_of(&call, 0, &timeout_ms) ? agent.dump_now((int)(timeout_ms & INT32_MAX)) : BAD_ARGUMENT);
}

/* dumpException(type, timeout in ms) */
static napi_value dump_exception(napi_env env, napi_callback_info info) {
  struct call call = begin(env, info);
  char type[MAX_TEXT_BYTES];
  uint32_t timeout_ms;
  if (agent.dump_exception == NULL) return result(&call, NOT_LOADED);
  if (!text_of(&call, 0, type) || !number_of(&call, 1, &timeout_ms)) return result(&call, BAD_ARGUMENT);
  return result(&call, agent.dump_exception(type, (int)(timeout_ms & INT32_MAX)));
}

/* heartbeatRegister(name, limit in ms): its number. */
static napi_value heartbeat_register(napi_env env, napi_callback_info info) {
  struct call call = begin(env, info);
  char name[MAX_TEXT_BYTES];
  uint32_t limit_ms;
  if (agent.heartbeat_register == NULL) return result(&call, NOT_LOADED);
  if (!text_of(&call, 0, name) || !number_of(&call, 1, &limit_ms)) return result(&call, BAD_ARGUMENT);
  for (uint32_t i = 0; i < MAX_HEARTBEATS; i++) {
    static stackd_heartbeat_t* const taken = (stackd_heartbeat_t*)-1;
    stackd_heartbeat_t* none = NULL;
    if (!__atomic_compare_exchange_n(&heartbeats[i], &none, taken, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
    __atomic_store_n(&heartbeats[i], agent.heartbeat_register(name, limit_ms), __ATOMIC_RELEASE);
    return result(&call, (int)i);
  }
  return result(&call, BAD_ARGUMENT);
}

static napi_value with_heartbeat(napi_env env, napi_callback_info info, void (*const* function)(stackd_heartbeat_t*),
                                 bool ends) {
  struct call call = begin(env, info);
  uint32_t number;
  if (!number_of(&call, 0, &number) || number >= MAX_HEARTBEATS) return result(&call, BAD_ARGUMENT);
  stackd_heartbeat_t* heartbeat = __atomic_load_n(&heartbeats[number], __ATOMIC_ACQUIRE);
  if (heartbeat == NULL) return result(&call, BAD_ARGUMENT);
  (*function)(heartbeat);
  if (ends) __atomic_store_n(&heartbeats[number], NULL, __ATOMIC_RELEASE);
  return result(&call, 0);
}

static napi_value beat(napi_env env, napi_callback_info info) { return with_heartbeat(env, info, &agent.beat, false); }

static napi_value suspend(napi_env env, napi_callback_info info) {
  return with_heartbeat(env, info, &agent.suspend, false);
}

static napi_value unregister(napi_env env, napi_callback_info info) {
  return with_heartbeat(env, info, &agent.unregister, true);
}

EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  static const struct {
    const char* name;
    napi_callback function;
  } functions[] = {
      {"install", install},
      {"nameThread", name_thread},
      {"nameProcess", name_process},
      {"dumpNow", dump_now},
      {"dumpException", dump_exception},
      {"heartbeatRegister", heartbeat_register},
      {"beat", beat},
      {"suspend", suspend},
      {"unregister", unregister},
  };
  for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
    napi_value function;
    if (napi_create_function(env, functions[i].name, strlen(functions[i].name), functions[i].function, NULL, &function) ==
        0) {
      napi_set_named_property(env, exports, functions[i].name, function);
    }
  }
  return exports;
}

EXPORT int32_t node_api_module_get_api_version_v1(void) { return 8; }
