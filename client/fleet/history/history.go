// Package history reads the crashes and hangs that daemons have sent to a store of logs, and opens dumps that were sent whole.
package history

import (
	"context"
	"fmt"
	"time"
)

// Kind is what a record is about, as daemons write it.
type Kind string

// The kinds that there are.
const (
	Crashes Kind = "CRASH"
	Hangs   Kind = "HANG"
)

// Window is a span of time. Its end is not part of it.
type Window struct{ Begin, End time.Time }

// Question is which records are wanted.
type Question struct {
	Window Window
	// Crashes or hangs, and their dumps; empty: dumps alone.
	Kind Kind
	// Empty: any.
	Fingerprint, Dump string
}

// Record says of a crash or a hang, or of a dump that was sent whole. Its texts are checked and bounded.
type Record struct {
	Time        time.Time
	Fingerprint string
	// "processes/{process}/dumps/{dump}"
	Dump string
	// Only a dump has one: that of its body.
	Digest string
	// Only crashes and hangs have them.
	Explanation, Cause string
	// "pod" (outside Kubernetes the host), "namespace", "node", "container", "service", "version": those that are known.
	Labels map[string]string
}

// Store has what daemons have sent. Its errors are Faults. It may lie: nothing of it is believed that can be checked.
type Store interface {
	// Records calls `each` with the records that are wanted, newest first, until that returns false. The sentences say what is
	// missing.
	Records(ctx context.Context, question Question, each func(Record) bool) (notes []string, err error)
	// Body returns what was sent as the dump that a record tells of.
	Body(ctx context.Context, record Record) (string, error)
	fmt.Stringer
}

// Reason is one of the API.
type Reason string

// Why history could not be read.
const (
	Unavailable Reason = "HISTORY_UNAVAILABLE"
	TimedOut    Reason = "HISTORY_TIMED_OUT"
	Refused     Reason = "HISTORY_REFUSED"
	BadAnswer   Reason = "HISTORY_BAD_ANSWER"
	NotFound    Reason = "DUMP_NOT_FOUND"
	Ambiguous   Reason = "DUMP_AMBIGUOUS"
	Damaged     Reason = "DUMP_DAMAGED"
	BadName     Reason = "BAD_NAME"
)

// Fault is why history could not be read, in one sentence.
type Fault struct {
	Reason   Reason
	Sentence string
	// Only of DUMP_AMBIGUOUS.
	Pods []string
}

func (f *Fault) Error() string { return f.Sentence }

func fault(reason Reason, format string, arguments ...any) *Fault {
	return &Fault{Reason: reason, Sentence: fmt.Sprintf(format, arguments...)}
}
