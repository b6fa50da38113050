//go:build !go1.23 && linux && amd64

package stackd

import "os"

// debug.SetCrashOutput came with Go 1.23.
func captureCrashOutput() *os.File { return nil }
