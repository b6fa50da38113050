package gateway

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// failure is an error of the API: a status, and a reason that clients branch on.
func failure(code connect.Code, reason, sentence string, metadata map[string]string) *connect.Error {
	failed := connect.NewError(code, errors.New(sentence))
	if detail, err := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: reason, Domain: "stackd", Metadata: metadata}); err == nil {
		failed.AddDetail(detail)
	}
	return failed
}

// reasonIn is the reason of a failure, for the audit.
func reasonIn(err error) string {
	var failed *connect.Error
	if !errors.As(err, &failed) {
		return ""
	}
	for _, detail := range failed.Details() {
		if value, err := detail.Value(); err == nil {
			if info, ok := value.(*errdetails.ErrorInfo); ok {
				return info.GetReason()
			}
		}
	}
	return ""
}
