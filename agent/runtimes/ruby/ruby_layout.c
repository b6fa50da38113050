#include "agent/runtimes/ruby/ruby_layout.h"

#include <stddef.h>

/* offsetof() in vm_core.h, iseq.h, ractor_core.h and thread_pthread.h of the source packages of Debian and Ubuntu. The
 * config.h is that of ruby3.1-dev (3.1.2), ruby3.2-dev (3.2.3), ruby3.3-dev (3.3.8) and ruby3.4-dev (3.4.5). What they lead
 * to is compared with what Ruby itself says in tests/e2e/ruby_test.py. */
static const struct stackd_ruby_layout kLayouts[] = {
    {
        .major = 3,
        .minor = 1,
        .frame_bytes = 64,
        .thread_context = 40,
        .ractor_running = 336,
        .code_lines = 120,
        .code_line_count = 136,
        .code_line_index = 144,
        .text_characters = 16,
        .text_length_is_in_flags = true,
    },
    {
        .major = 3,
        .minor = 2,
        .frame_bytes = 64,
        .thread_context = 48,
        .ractor_running = 336,
        .code_lines = 112,
        .code_line_count = 128,
        .code_line_index = 136,
        .text_characters = 24,
    },
    {
        .major = 3,
        .minor = 3,
        .frame_bytes = 56,
        .thread_context = 48,
        .ractor_running = 328,
        .code_lines = 112,
        .code_line_count = 128,
        .code_line_index = 136,
        .text_characters = 24,
    },
    {
        .major = 3,
        .minor = 4,
        .frame_bytes = 56,
        .thread_context = 48,
        .ractor_running = 328,
        .code_lines = 112,
        .code_line_count = 128,
        .code_line_index = 136,
        .text_characters = 24,
    },
};

const struct stackd_ruby_layout* stackd_ruby_layout(uint32_t major, uint32_t minor) {
  for (size_t i = 0; i < sizeof(kLayouts) / sizeof(kLayouts[0]); i++) {
    if (kLayouts[i].major == major && kLayouts[i].minor == minor) return &kLayouts[i];
  }
  return NULL;
}
