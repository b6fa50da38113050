package collect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/targets"
)

// authority writes its own certificate, and returns one for localhost.
func authority(t *testing.T, path string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A daemon may end the connection at any moment after the handshake: at once, or when the first request has come.
func TestAConnectionThatEndsAfterTheHandshakeIsTheCertificates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.crt")
	certificate := authority(t, path)
	for _, pause := range []time.Duration{0, 0, 0, time.Millisecond, 30 * time.Millisecond} {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"},
			SessionTicketsDisabled: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				secured, _ := connection.(*tls.Conn)
				secured.Handshake()
				time.Sleep(pause)
				// Without a word of farewell, as some servers do.
				secured.NetConn().Close()
			}
		}()
		daemons, err := NewDaemons(TLS{Authority: path, ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = daemons.Ask(context.Background(), targets.Target{Address: listener.Addr().String()}, &stackdv1.CreateFleetDumpRequest{})
		if got := reasonOf(context.Background(), err); got.kind != stackdv1.Unreachable_TLS || !errors.Is(err, errNotAccepted) {
			t.Errorf("after %v: %v, %v", pause, got, err)
		}
	}
}

func TestADaemonWithoutTLSIsToldApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "authority.crt")
	authority(t, path)
	daemons, err := NewDaemons(TLS{Authority: path, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	address := (&daemon{}).serve(t)
	_, err = daemons.Ask(context.Background(), targets.Target{Address: address}, &stackdv1.CreateFleetDumpRequest{})
	if got := reasonOf(context.Background(), err); got.kind != stackdv1.Unreachable_TLS {
		t.Errorf("%v, %v", got, err)
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		t.Errorf("it was connected: %v", err)
	}
}
