package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"unicode"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
)

// reason says why a target gave no dump.
type reason struct {
	kind        stackdv1.Unreachable_Reason
	explanation string
}

// Refusal is an error of an Asker that knows its reason.
type Refusal struct {
	Reason      stackdv1.Unreachable_Reason
	Explanation string
}

func (r *Refusal) Error() string { return r.Explanation }

// What a daemon says may be anything: one line of it is shown.
const maxSaidBytes = 300

func reasonOf(ctx context.Context, err error) reason {
	if err == nil {
		return reason{stackdv1.Unreachable_NO_PROCESS, "its daemon is well, and no process that was asked for is connected to it"}
	}
	var refusal *Refusal
	if errors.As(err, &refusal) && ctx.Err() == nil {
		return reason{refusal.Reason, said(refusal)}
	}
	if errors.Is(err, errBadAnswer) {
		return reason{stackdv1.Unreachable_BAD_ANSWER, said(err)}
	}
	if errors.Is(err, errTooLarge) {
		return reason{stackdv1.Unreachable_TOO_LARGE, "its answer is larger than 4 MiB"}
	}
	if kind := ofConnection(err); kind != stackdv1.Unreachable_REASON_UNSPECIFIED {
		return reason{kind, said(cause(err))}
	}
	if ctx.Err() != nil || connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		return reason{stackdv1.Unreachable_TIMED_OUT, "it had not answered when the time was over"}
	}
	return ofStatus(err)
}

// ofConnection looks for errors of network and TLS, which the HTTP client keeps as they were.
func ofConnection(err error) stackdv1.Unreachable_Reason {
	var (
		dial      *net.OpError
		name      *net.DNSError
		verify    *tls.CertificateVerificationError
		alert     tls.AlertError
		header    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &verify), errors.As(err, &alert), errors.As(err, &header), errors.As(err, &authority),
		errors.As(err, &host), errors.As(err, &invalid), errors.Is(err, errNotTLS), errors.Is(err, errNotAccepted):
		return stackdv1.Unreachable_TLS
	case errors.As(err, &name):
		return stackdv1.Unreachable_NO_CONNECTION
	case errors.As(err, &dial) && dial.Op == "dial":
		if dial.Timeout() {
			return stackdv1.Unreachable_TIMED_OUT
		}
		return stackdv1.Unreachable_NO_CONNECTION
	case errors.As(err, &dial) && dial.Op == "remote error":
		return stackdv1.Unreachable_TLS
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrUnexpectedEOF):
		return stackdv1.Unreachable_BROKE_OFF
	}
	return stackdv1.Unreachable_REASON_UNSPECIFIED
}

// cause is the innermost error: what a person would say first.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil || inner == errNotAccepted {
			return err
		}
		var dial *net.OpError
		if errors.As(err, &dial) && error(dial) == err {
			return err
		}
		err = inner
	}
}

var statusReasons = map[connect.Code]stackdv1.Unreachable_Reason{
	connect.CodePermissionDenied:  stackdv1.Unreachable_PERMISSION_DENIED,
	connect.CodeUnauthenticated:   stackdv1.Unreachable_PERMISSION_DENIED,
	connect.CodeResourceExhausted: stackdv1.Unreachable_RATE_LIMITED,
	connect.CodeUnimplemented:     stackdv1.Unreachable_BAD_ANSWER,
	connect.CodeUnknown:           stackdv1.Unreachable_BAD_ANSWER,
	connect.CodeInternal:          stackdv1.Unreachable_BAD_ANSWER,
	connect.CodeUnavailable:       stackdv1.Unreachable_BROKE_OFF,
}

func ofStatus(err error) reason {
	code := connect.CodeOf(err)
	var status *connect.Error
	if !errors.As(err, &status) {
		return reason{stackdv1.Unreachable_FAILED, said(err)}
	}
	if !connect.IsWireError(err) {
		return ofClient(code, said(status.Unwrap()))
	}
	kind, known := statusReasons[code]
	if !known {
		kind = stackdv1.Unreachable_FAILED
	}
	return reason{kind, said(errors.New(code.String() + ": " + status.Message()))}
}

// ofClient is about errors that the client found by itself.
func ofClient(code connect.Code, explanation string) reason {
	switch code {
	case connect.CodeResourceExhausted:
		return reason{stackdv1.Unreachable_TOO_LARGE, "its answer is larger than 4 MiB"}
	case connect.CodeUnavailable, connect.CodeCanceled:
		return reason{stackdv1.Unreachable_BROKE_OFF, explanation}
	}
	return reason{stackdv1.Unreachable_BAD_ANSWER, explanation}
}

func said(err error) string {
	text := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, err.Error())
	if len(text) > maxSaidBytes {
		text = strings.ToValidUTF8(text[:maxSaidBytes], "") + "…"
	}
	return text
}
