package gateway

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// codeOf is the status that a caller gets, who may have left or set a deadline.
func codeOf(err error) connect.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeOf(err)
}

// failure is an error of the API: a status, and a reason that clients branch on.
func failure(code connect.Code, reason, sentence string, metadata map[string]string) *connect.Error {
	failed := connect.NewError(code, errors.New(sentence))
	if detail, err := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: reason, Domain: "stackd", Metadata: metadata}); err == nil {
		failed.AddDetail(detail)
	}
	return failed
}
