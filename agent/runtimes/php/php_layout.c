#include "agent/runtimes/php/php_layout.h"

#include <stddef.h>

/* offsetof() in the headers of Debian's php7.4-dev (7.4.33), php8.2-dev (8.2.32), php8.4-dev (8.4.27) and php8.5-dev
 * (8.5.7), and of Ubuntu's php8.1-dev (8.1.2) and php8.3-dev (8.3.6). tests/languages/php/layout.c prints them. */
static const struct stackd_php_layout kLayouts[] = {
    {.api = 20190902, .globals_current_frame = 488, .code_count = 60, .code = 64, .code_file = 136},
    {.api = 20210902, .globals_current_frame = 488, .code_count = 68, .code = 72, .code_file = 144},
    {.api = 20220829, .globals_current_frame = 488, .code_count = 80, .code = 88, .code_file = 152},
    {.api = 20230831, .globals_current_frame = 488, .code_count = 76, .code = 80, .code_file = 144},
    {.api = 20240924, .globals_current_frame = 488, .code_count = 96, .code = 104, .code_file = 168},
    {.api = 20250925, .globals_current_frame = 512, .code_count = 96, .code = 104, .code_file = 168},
};

const struct stackd_php_layout* stackd_php_layout(uint32_t api) {
  for (size_t i = 0; i < sizeof(kLayouts) / sizeof(kLayouts[0]); i++) {
    if (kLayouts[i].api == api) return &kLayouts[i];
  }
  return NULL;
}
