/* An addon that faults while it is loaded. */
__attribute__((constructor)) static void addon_faults(void) { *(volatile int*)8 = 1; }
