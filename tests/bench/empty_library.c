/* libempty.so: does nothing. What it adds to a start is what any library adds that is preloaded. */
void stackd_bench_empty(void);
void stackd_bench_empty(void) {}
