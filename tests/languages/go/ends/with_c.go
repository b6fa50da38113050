package main

// static int c_fails(int* where) { return *where; }
import "C"

func init() { failInC = func() int { return int(C.c_fails(nil)) } }
