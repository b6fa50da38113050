package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// TLS is how daemons are spoken to; the zero value is without TLS.
type TLS struct {
	// Files of the gateway's own certificate, which daemons ask for, and of the authority of theirs. They are read for each
	// connection, so a new certificate needs no new gateway.
	Certificate, Key, Authority string
	// The name in the daemons' certificates; empty: the host of the target.
	ServerName string
}

func (t TLS) enabled() bool { return t.Authority != "" || t.Certificate != "" }

var errNotTLS = errors.New("it does not speak TLS there")

const (
	dialTimeout = 3 * time.Second
	// Connections are kept between questions: a handshake costs more than an answer.
	keepConnection = 10 * time.Minute
)

// Config reads the files. It is called once at the start, so that a fault is told then.
func (t TLS) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, NextProtos: []string{"h2"}}
	if t.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Certificate, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if t.Authority != "" {
		pool, err := PoolOf(t.Authority)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	return config, nil
}

// PoolOf reads certificates of authorities.
func PoolOf(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return pool, nil
}

// NewDaemons returns a client of daemons. It speaks HTTP/2 alone, as they do.
func NewDaemons(security TLS) (*Daemons, error) {
	protocols := new(http.Protocols)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		Protocols: protocols, DialContext: dialer.DialContext,
		IdleConnTimeout: keepConnection, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 256 << 10, MaxReceiveBufferPerConnection: 1 << 20,
			MaxReadFrameSize: 64 << 10, SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
	if !security.enabled() {
		protocols.SetUnencryptedHTTP2(true)
		return &Daemons{client: &http.Client{Transport: bounded{transport}, CheckRedirect: noRedirect}, scheme: "http"}, nil
	}
	if _, err := security.Config(); err != nil {
		return nil, err
	}
	protocols.SetHTTP2(true)
	transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialTLS(ctx, dialer, network, address, security)
	}
	return &Daemons{client: &http.Client{Transport: bounded{transport}, CheckRedirect: noRedirect}, scheme: "https"}, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func dialTLS(ctx context.Context, dialer *net.Dialer, network, address string, security TLS) (net.Conn, error) {
	config, err := security.Config()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	plain, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	below := &afterHandshake{Conn: plain}
	encrypted := tls.Client(below, config)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := encrypted.HandshakeContext(ctx); err != nil {
		plain.Close()
		var header tls.RecordHeaderError
		if errors.As(err, &header) {
			return nil, errNotTLS
		}
		return nil, err
	}
	below.began.Store(true)
	return encrypted, nil
}

var errNotAccepted = errors.New("the daemon ended the connection after the TLS handshake: does it accept the gateway's certificate?")

// afterHandshake is the connection below TLS. It tells an end right after the handshake from a later one. In TLS 1.3 a server
// refuses a certificate when the handshake is over for the client.
type afterHandshake struct {
	net.Conn
	began, heard atomic.Bool
}

func (a *afterHandshake) Read(into []byte) (int, error) {
	n, err := a.Conn.Read(into)
	if n > 0 && a.began.Load() {
		a.heard.Store(true)
	}
	return n, a.explained(err)
}

func (a *afterHandshake) Write(data []byte) (int, error) {
	n, err := a.Conn.Write(data)
	return n, a.explained(err)
}

func (a *afterHandshake) explained(err error) error {
	if err == nil || !a.began.Load() || a.heard.Load() || errors.Is(err, net.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w (%v)", errNotAccepted, err)
}
