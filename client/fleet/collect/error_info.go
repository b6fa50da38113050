package collect

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// ReasonIn is the reason of an error of the API, on which clients branch; empty: it has none.
func ReasonIn(err error) string {
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
