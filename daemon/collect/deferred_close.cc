#include "daemon/collect/deferred_close.h"

#include <pthread.h>

#include <utility>

namespace stackd {
namespace {

void* Destroy(void* object) {
  delete static_cast<std::shared_ptr<void>*>(object);
  return nullptr;
}

}  // namespace

void DeferClose(std::shared_ptr<void> object) {
  auto* reference = new std::shared_ptr<void>(std::move(object));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  // Without memory or room for a thread it happens here: waiting perhaps is better than leaking surely.
  if (pthread_create(&thread, &attributes, Destroy, reference) != 0) Destroy(reference);
  pthread_attr_destroy(&attributes);
}

}  // namespace stackd
