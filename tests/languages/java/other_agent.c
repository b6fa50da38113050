/* Another agent of a Java VM, built as many are: it calls its own Agent_OnLoad by name, through the linker. */
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int Agent_OnLoad(void* vm, char* options, void* reserved) {
  (void)vm, (void)options, (void)reserved;
  return write(1, "other agent\n", 12) == 12 ? 0 : 1;
}

EXPORT int Agent_OnAttach(void* vm, char* options, void* reserved) { return Agent_OnLoad(vm, options, reserved); }
