// The C++ between two layers of JavaScript: see mixed_node.js. By Node-API, whose functions are declared here since their
// header does not come with every node.
#include <cstddef>

extern "C" {
struct napi_env__;
struct napi_value__;
struct napi_callback_info__;
using napi_env = napi_env__*;
using napi_value = napi_value__*;
using napi_callback_info = napi_callback_info__*;
using napi_callback = napi_value (*)(napi_env, napi_callback_info);
int napi_get_cb_info(napi_env, napi_callback_info, size_t*, napi_value*, napi_value*, void**);
int napi_get_undefined(napi_env, napi_value*);
int napi_call_function(napi_env, napi_value, napi_value, size_t, const napi_value*, napi_value*);
int napi_create_function(napi_env, const char*, size_t, napi_callback, void*, napi_value*);
int napi_set_named_property(napi_env, napi_value, const char*, napi_value);
}

namespace mixed {

__attribute__((noinline)) void CallBack(napi_env env, napi_value function) {
  napi_value undefined;
  napi_value result;
  napi_get_undefined(env, &undefined);
  napi_call_function(env, undefined, function, 0, nullptr, &result);
}

napi_value ThroughCpp(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value function;
  napi_get_cb_info(env, info, &count, &function, nullptr, nullptr);
  CallBack(env, function);
  asm volatile("");  // not a tail call
  return nullptr;
}

}  // namespace mixed

extern "C" __attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  napi_value function;
  napi_create_function(env, "throughCpp", 10, mixed::ThroughCpp, nullptr, &function);
  napi_set_named_property(env, exports, "throughCpp", function);
  return exports;
}
