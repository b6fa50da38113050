// Recovers from nil dereferences, in Go and behind a callback from C, as a server does with a bad request.
package main

/*
#include <stdlib.h>

extern int calledByC(int);

static int callsGo(int number) { return calledByC(number); }
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

type request struct{ customer *struct{ age int } }

var none *request

//export calledByC
func calledByC(number C.int) (result C.int) {
	defer func() {
		if recover() != nil {
			result = number + 1
		}
	}()
	return C.int(none.customer.age)
}

func handle() (recovered bool) {
	defer func() {
		if reason, ok := recover().(runtime.Error); ok {
			recovered = strings.Contains(reason.Error(), "nil pointer dereference")
		}
	}()
	return none.customer.age == 0
}

func awaitRing() {
	for {
		maps, err := os.ReadFile("/proc/self/maps")
		if err == nil && strings.Contains(string(maps), "/memfd:stackd-ring") {
			return
		}
		runtime.Gosched()
	}
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	if len(os.Args) > 2 {
		awaitRing()
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	total := 0
	for worker := 0; worker < 4; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			recovered := 0
			for i := 0; i < count; i++ {
				if handle() {
					recovered++
				}
				if C.callsGo(C.int(i)) == C.int(i+1) {
					recovered++
				}
			}
			lock.Lock()
			total += recovered
			lock.Unlock()
		}()
	}
	group.Wait()
	fmt.Println("recovered", total)
}
