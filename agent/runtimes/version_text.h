/* Versions that a runtime keeps as text. NOT SIGNAL-SAFE. */
#ifndef STACKD_VERSION_TEXT_H_
#define STACKD_VERSION_TEXT_H_

#include <stdbool.h>
#include <stdint.h>

/* Whether the C string at `address` is `text`, of at most 31 bytes. */
bool stackd_is_text_at(uint64_t address, const char* text);

/* 80236 for "8.2.36-1+deb12u1" at `address`. 0 if no version is there. */
uint32_t stackd_version_at(uint64_t address);

#endif /* STACKD_VERSION_TEXT_H_ */
