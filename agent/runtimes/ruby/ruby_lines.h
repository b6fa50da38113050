/* From a place in the code of a method to its line. */
#ifndef STACKD_RUBY_LINES_H_
#define STACKD_RUBY_LINES_H_

#include "agent/runtimes/ruby/ruby_layout.h"
#include "agent/runtimes/walker.h"

/* The line of the instruction in front of `pc`, or 0. `body`: STACKD_RUBY_BODY_BYTES of an rb_iseq_constant_body.
 * SIGNAL-SAFE. */
int64_t stackd_ruby_line(const struct stackd_ruby_layout* layout, const struct stackd_managed_thread* thread,
                         const uint64_t* body, uint64_t pc) STACKD_HANDLER;

#endif /* STACKD_RUBY_LINES_H_ */
