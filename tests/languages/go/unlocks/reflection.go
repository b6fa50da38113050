//go:build reflection

package main

import (
	"reflect"
	"time"
)

//go:noinline
func call(value any, method string) { reflect.ValueOf(value).MethodByName(method).Call(nil) }

func init() { hold = start }

//go:noinline
func start() {
	call(&accounts, "Lock")
	time.AfterFunc(time.Hour, func() { call(&accounts, "Unlock") })
}
