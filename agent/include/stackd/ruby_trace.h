/* What entries of STACKD_RUNTIME_RUBY mean, beyond ring_abi.h: between agent/runtimes/ruby and daemon/managed/ruby. */
#ifndef STACKD_RUBY_TRACE_H_
#define STACKD_RUBY_TRACE_H_

/* stackd_managed_frame.key: the address of its rb_iseq_t; position: its line, or 0.
 *
 * stackd_managed_symbol.function: its label, "block in pay".
 *
 * stackd_managed_runtime.version: 30102 for 3.1.2; instance: the address of the thread's rb_execution_context_t. The flag
 * STACKD_MANAGED_HOLDS_GIL says that the thread had the global VM lock. */

#endif /* STACKD_RUBY_TRACE_H_ */
