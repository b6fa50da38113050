/* Where PHP keeps what a walk over its frames needs. */
#ifndef STACKD_PHP_LAYOUT_H_
#define STACKD_PHP_LAYOUT_H_

#include <stdbool.h>
#include <stdint.h>

/* What a version of PHP has at a place of its own. Structures are named as PHP names them. */
struct stackd_php_layout {
  uint32_t api;                   /* ZEND_MODULE_API_NO: one for each minor version */
  uint32_t globals_current_frame; /* of zend_executor_globals: current_execute_data */
  uint32_t code_count;            /* of zend_op_array: how many zend_op there are */
  uint32_t code;
  uint32_t code_file;
};

/* NULL if nothing is known of this version. */
const struct stackd_php_layout* stackd_php_layout(uint32_t api);

/* What all of these versions have at one place. */
enum {
  STACKD_PHP_FRAME_OPCODE = 0, /* zend_execute_data */
  STACKD_PHP_FRAME_FUNCTION = 24,
  STACKD_PHP_FRAME_FLAGS = 40,
  STACKD_PHP_FRAME_PREVIOUS = 48,
  STACKD_PHP_FRAME_BYTES = 56,
  STACKD_PHP_FUNCTION_TYPE = 0, /* zend_function, of which a zend_op_array is one kind */
  STACKD_PHP_FUNCTION_NAME = 8,
  STACKD_PHP_FUNCTION_CLASS = 16,
  STACKD_PHP_FUNCTION_BYTES = 24,
  STACKD_PHP_CODE_BYTES = 176,
  STACKD_PHP_CLASS_NAME = 8,   /* zend_class_entry */
  STACKD_PHP_TEXT_LENGTH = 16, /* zend_string */
  STACKD_PHP_TEXT_CHARACTERS = 24,
  STACKD_PHP_OPCODE_LINE = 24, /* zend_op */
  STACKD_PHP_OPCODE_BYTES = 32,
  STACKD_PHP_TABLE_BUCKETS = 16, /* HashTable */
  STACKD_PHP_TABLE_USED = 24,
  STACKD_PHP_BUCKET_BYTES = 32,
  STACKD_PHP_MODULE_API = 4, /* zend_module_entry */
  STACKD_PHP_MODULE_IS_DEBUG = 8,
  STACKD_PHP_MODULE_IS_THREAD_SAFE = 9,
  STACKD_PHP_MODULE_NAME = 32,
  STACKD_PHP_MODULE_VERSION = 88,
  STACKD_PHP_MODULE_BYTES = 96,
};

/* ZEND_CALL_TOP: native code called the interpreter for this frame. */
#define STACKD_PHP_CALLED_BY_NATIVE (1u << 17)

/* zend_function.type */
enum {
  STACKD_PHP_INTERNAL_FUNCTION = 1, /* written in C */
  STACKD_PHP_USER_FUNCTION = 2,
  STACKD_PHP_EVAL_CODE = 4,
};

#endif /* STACKD_PHP_LAYOUT_H_ */
