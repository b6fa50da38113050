package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/collect"
)

const (
	maxRequestBytes = 64 << 10
	// One fleet dump.
	maxPartBytes   = 4 << 20
	maxConnections = 1000
	// Calls of one connection at once.
	maxStreams = 32
)

// CallerTLS is how callers are told apart. Its files are read for each connection.
type CallerTLS struct {
	Certificate, Key string
	// The authority of the callers' certificates; empty: callers have none.
	Authority string
	// A caller may show a token in place of a certificate.
	Tokens bool
}

func (c CallerTLS) enabled() bool { return c.Certificate != "" }

func (c CallerTLS) config() (*tls.Config, error) {
	config, err := collect.TLS{Certificate: c.Certificate, Key: c.Key}.Config()
	if err != nil {
		return nil, err
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if c.Tokens {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if c.Tokens && c.Authority == "" {
		config.ClientAuth = tls.NoClientCert
	} else if config.ClientCAs, err = collect.PoolOf(c.Authority); err != nil {
		return nil, err
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	return config, nil
}

// Serve answers calls until the context ends, and those that have begun to their end.
func Serve(ctx context.Context, listener net.Listener, service *Service, access *Access, security CallerTLS, log *slog.Logger) error {
	// Fleet dumps end by their own time limit. An answer that is not read, though, would stay for ever.
	server := &http.Server{
		Handler: handler(service, access, log), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * maxTimeout, WriteTimeout: 2 * maxTimeout,
		IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 32 << 10, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: time.Minute, PingTimeout: 15 * time.Second},
		// What strangers send is no line of the log each.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	server.Protocols.SetHTTP1(true)
	listener = limited(listener, maxConnections, service.measures.refusedConnections.Inc)
	if security.enabled() {
		config, err := security.config()
		if err != nil {
			return err
		}
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return security.config()
		}
		server.TLSConfig = config
		server.Protocols.SetHTTP2(true)
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(ended)
		service.ending.Store(true)
		ending, cancel := context.WithTimeout(context.Background(), maxTimeout)
		defer cancel()
		if server.Shutdown(ending) != nil {
			server.Close()
		}
	})
	serve := server.Serve
	if security.enabled() {
		serve = func(listener net.Listener) error { return server.ServeTLS(listener, "", "") }
	}
	if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended
	return nil
}

func handler(service *Service, access *Access, log *slog.Logger) http.Handler {
	guarded := connect.WithHandlerOptions(connect.WithInterceptors(guard{log, service.measures, access.tokens}), connect.WithReadMaxBytes(maxRequestBytes),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if spec.Procedure == stackdv1connect.FleetMergeStacksProcedure {
				return []connect.HandlerOption{connect.WithReadMaxBytes(maxPartBytes)}
			}
			return nil
		}),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, fault any) error {
			log.Error("a fault of the gateway", "method", spec.Procedure, "fault", fmt.Sprint(fault))
			return connect.NewError(connect.CodeInternal, errors.New("a fault of the gateway: its log has more"))
		}))
	limit := connect.WithReadMaxBytes(maxRequestBytes)
	reflector := grpcreflect.NewStaticReflector(stackdv1connect.FleetName, grpchealth.HealthV1ServiceName)
	calls := http.NewServeMux()
	calls.Handle(stackdv1connect.NewFleetHandler(service, guarded))
	calls.Handle(stackdv1connect.NewStackdHandler(asDaemon{service: service}, guarded))
	servePage(calls)
	calls.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(stackdv1connect.FleetName), limit))
	calls.Handle(grpcreflect.NewHandlerV1(reflector, limit))
	calls.Handle(grpcreflect.NewHandlerV1Alpha(reflector, limit))
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.TLS == nil && !isLocal(request) {
			http.Error(writer, "only this machine's own names are served without TLS", http.StatusForbidden)
			return
		}
		caller := access.CallerOf(request)
		calls.ServeHTTP(writer, request.WithContext(context.WithValue(request.Context(), callerKey{}, caller)))
	})
}

// limited refuses connections beyond a number at once, and tells each, so that strangers cannot take all memory.
func limited(inner net.Listener, limit int, refused func()) net.Listener {
	return &limitedListener{Listener: inner, slots: make(chan struct{}, limit), refused: refused}
}

type limitedListener struct {
	net.Listener
	slots   chan struct{}
	refused func()
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &limitedConnection{Conn: connection, slots: l.slots}, nil
		default:
			l.refused()
			connection.Close()
		}
	}
}

type limitedConnection struct {
	net.Conn
	slots  chan struct{}
	closed sync.Once
}

func (c *limitedConnection) Close() error {
	c.closed.Do(func() { <-c.slots })
	return c.Conn.Close()
}

// CheckListen refuses addresses beyond loopback without TLS: there a caller would be unknown.
func CheckListen(address string, security CallerTLS) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--listen %s: write like 127.0.0.1:7447", address)
	}
	if security.enabled() || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen %s needs mutual TLS: give --tls-cert, --tls-key and --tls-client-ca", address)
	}
	return nil
}
