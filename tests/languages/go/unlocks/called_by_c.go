//go:build called_by_c

package main

// #include <pthread.h>
// #include <unistd.h>
//
// void releaseAccounts(void);
//
// static void* wait_and_release(void* unused) {
//   sleep(3600);
//   releaseAccounts();
//   return unused;
// }
//
// static int release_in_an_hour(void) {
//   pthread_t thread;
//   return pthread_create(&thread, 0, wait_and_release, 0);
// }
import "C"

//export releaseAccounts
func releaseAccounts() { accounts.Unlock() }

func init() { hold = start }

//go:noinline
func start() {
	accounts.Lock()
	C.release_in_an_hour()
}
