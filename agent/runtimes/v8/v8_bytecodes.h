/* How long V8's bytecodes are: it keeps no more of a place in its baseline code than how many of them come before. */
#ifndef STACKD_V8_BYTECODES_H_
#define STACKD_V8_BYTECODES_H_

#include <stdint.h>

#include "agent/sys/syscalls.h"

/* The first four say that operands of the next one have 2 bytes, 4 bytes, and the same for a debugger. */
#define STACKD_V8_PREFIXES 4u

struct stackd_v8_bytecodes {
  const uint8_t* entries;
  uint32_t count; /* 0: of this version they are not known */
};

/* NOT SIGNAL-SAFE. */
struct stackd_v8_bytecodes stackd_v8_bytecodes(uint16_t major, uint16_t minor);

/* Without a prefix; `operand_bytes` is 1 if it has none. 0: there is no such bytecode. SIGNAL-SAFE. */
uint32_t stackd_v8_bytecode_size(const struct stackd_v8_bytecodes* bytecodes, uint32_t bytecode,
                                 uint32_t operand_bytes) STACKD_HANDLER;

#endif /* STACKD_V8_BYTECODES_H_ */
