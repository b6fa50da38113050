/* Prints what agent/runtimes/php/php_layout.c must say of the PHP whose headers this is compiled with: a line "field value"
 * each. */
#include <main/php.h>
#include <stddef.h>
#include <stdio.h>
#include <zend_modules.h>

#define FIELD(name, type, member) printf("%s %zu\n", name, offsetof(type, member))

int main(void) {
  printf("api %d\n", ZEND_MODULE_API_NO);
  FIELD("globals_current_frame", zend_executor_globals, current_execute_data);
  FIELD("code_count", zend_op_array, last);
  FIELD("code", zend_op_array, opcodes);
  FIELD("code_file", zend_op_array, filename);
  FIELD("FRAME_OPCODE", zend_execute_data, opline);
  FIELD("FRAME_FUNCTION", zend_execute_data, func);
  FIELD("FRAME_FLAGS", zend_execute_data, This.u1.type_info);
  FIELD("FRAME_PREVIOUS", zend_execute_data, prev_execute_data);
  FIELD("FUNCTION_TYPE", zend_function, type);
  FIELD("FUNCTION_NAME", zend_function, common.function_name);
  FIELD("FUNCTION_CLASS", zend_function, common.scope);
  FIELD("CLASS_NAME", zend_class_entry, name);
  FIELD("TEXT_LENGTH", zend_string, len);
  FIELD("TEXT_CHARACTERS", zend_string, val);
  FIELD("OPCODE_LINE", zend_op, lineno);
  printf("OPCODE_BYTES %zu\n", sizeof(zend_op));
  FIELD("TABLE_BUCKETS", HashTable, arData);
  FIELD("TABLE_USED", HashTable, nNumUsed);
  printf("BUCKET_BYTES %zu\n", sizeof(Bucket));
  FIELD("MODULE_API", zend_module_entry, zend_api);
  FIELD("MODULE_IS_DEBUG", zend_module_entry, zend_debug);
  FIELD("MODULE_IS_THREAD_SAFE", zend_module_entry, zts);
  FIELD("MODULE_NAME", zend_module_entry, name);
  FIELD("MODULE_VERSION", zend_module_entry, version);
  printf("CALLED_BY_NATIVE %u\n", (unsigned)ZEND_CALL_TOP);
  return 0;
}
