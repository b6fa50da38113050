package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
)

// What each call needs. What is not here needs to read.
var needed = map[string]Role{stackdv1connect.FleetCreateFleetDumpProcedure: Dump}

// guard refuses calls of callers that have not the role for them, counts each, and writes a line of the log. Never a stack.
type guard struct {
	log      *slog.Logger
	measures *measures
	tokens   *tokens
}

// WrapUnary is for calls with one answer.
func (g guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		begin, end := time.Now(), g.measures.begin(request.Spec())
		var response connect.AnyResponse
		ctx, err := g.admit(ctx, request.Header(), request.Spec().Procedure)
		if err == nil {
			response, err = next(ctx, request)
		}
		end(err)
		g.write(ctx, request.Spec().Procedure, resourceOf(request.Any()), err, begin)
		return response, err
	}
}

// WrapStreamingClient is none of a server's.
func (g guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is for calls with a stream of answers.
func (g guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		begin, end := time.Now(), g.measures.begin(stream.Spec())
		read := &readRequest{StreamingHandlerConn: stream}
		ctx, err := g.admit(ctx, stream.RequestHeader(), stream.Spec().Procedure)
		if err == nil {
			err = next(ctx, read)
		}
		end(err)
		g.write(ctx, stream.Spec().Procedure, read.resource, err, begin)
		return err
	}
}

// readRequest remembers what a streaming call asked for.
type readRequest struct {
	connect.StreamingHandlerConn
	resource string
}

func (r *readRequest) Receive(message any) error {
	err := r.StreamingHandlerConn.Receive(message)
	if err == nil {
		r.resource = resourceOf(message)
	}
	return err
}

// admit tells who calls: the subject of a token if one is shown, else whom the connection belongs to.
func (g guard) admit(ctx context.Context, header http.Header, procedure string) (context.Context, error) {
	if token := bearer(header); token != "" && g.tokens != nil {
		caller, seen, err := g.tokens.admit(ctx, token)
		ctx = context.WithValue(context.WithValue(ctx, callerKey{}, caller), viewKey{}, seen)
		if err != nil {
			return ctx, err
		}
	}
	return ctx, allowed(ctx, procedure)
}

func allowed(ctx context.Context, procedure string) error {
	role, named := needed[procedure]
	if !named {
		role = Read
	}
	caller := callerOf(ctx)
	if caller.Role >= role {
		return nil
	}
	method := procedure[strings.LastIndexByte(procedure, '/')+1:]
	return failure(connect.CodePermissionDenied, "ROLE_MISSING", caller.Name+" has the role "+caller.Role.String()+", and "+method+
		" needs "+role.String(), map[string]string{"caller": caller.Name, "role": caller.Role.String(), "needed": role.String()})
}

// resourceOf is what the caller named.
func resourceOf(request any) string {
	switch request := request.(type) {
	case *stackdv1.ListTargetsRequest:
		return request.GetSelector()
	case *stackdv1.CreateFleetDumpRequest:
		return request.GetSelector()
	case *stackdv1.CreateFleetDumpResponse:
		return request.GetFleetDump().GetRequest().GetSelector()
	case *stackdv1.GetFleetDumpRequest:
		return request.GetName()
	case *stackdv1.ListCrashesRequest:
		return request.GetSelector()
	case *stackdv1.ListHangsRequest:
		return request.GetSelector()
	case *stackdv1.GetDumpRequest:
		return request.GetName()
	case *stackdv1.GetHistoryDumpRequest:
		return request.GetName()
	}
	return ""
}

const maxLoggedBytes = 256

func (g guard) write(ctx context.Context, procedure, resource string, err error, begin time.Time) {
	caller := callerOf(ctx)
	level, status := slog.LevelInfo, "OK"
	if err != nil {
		code := codeOf(err)
		status = strings.ToUpper(code.String())
		if code == connect.CodePermissionDenied || code == connect.CodeUnauthenticated || code == connect.CodeResourceExhausted {
			level = slog.LevelWarn
		}
	}
	if len(resource) > maxLoggedBytes {
		resource = strings.ToValidUTF8(resource[:maxLoggedBytes], "")
	}
	attributes := []slog.Attr{slog.String("caller", caller.Name), slog.String("role", caller.Role.String()),
		slog.String("method", procedure[strings.LastIndexByte(procedure, '/')+1:]), slog.String("resource", resource),
		slog.String("status", status)}
	if reason := collect.ReasonIn(err); reason != "" {
		attributes = append(attributes, slog.String("reason", reason))
	}
	g.log.LogAttrs(ctx, level, "call", append(attributes, slog.Int64("ms", time.Since(begin).Milliseconds()))...)
}
