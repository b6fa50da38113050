/* What entries of STACKD_RUNTIME_PHP mean, beyond ring_abi.h: between agent/runtimes/php and daemon/managed/php. */
#ifndef STACKD_PHP_TRACE_H_
#define STACKD_PHP_TRACE_H_

/* stackd_managed_frame.key: the address of its zend_function; position: its line, or 0.
 *
 * stackd_managed_symbol.table: the name of its class, if it has one. Its file is empty if it is written in C.
 *
 * stackd_managed_symbol.table_format: what it is if it has no name. */
enum stackd_php_code {
  STACKD_PHP_MAIN = 0,      /* a file that was run */
  STACKD_PHP_INCLUDED = 1,  /* a file that other code includes */
  STACKD_PHP_EVALUATED = 2, /* a text that other code evaluates */
};

/* stackd_managed_runtime.version: PHP_VERSION_ID, 80236 for 8.2.36. */

#endif /* STACKD_PHP_TRACE_H_ */
