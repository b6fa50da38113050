package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

const rules = `access:
  - {uri: "spiffe://test/ops/*", role: dump}
  - {uri: "spiffe://test/ops/mallory", role: none}
  - {dns: dashboard.test, role: read}
  - {dns: both.test, role: read}
loopback: read
`

func certificate(t *testing.T, uri string, names ...string) *x509.Certificate {
	t.Helper()
	made := &x509.Certificate{DNSNames: names}
	if uri != "" {
		parsed, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		made.URIs = []*url.URL{parsed}
	}
	return made
}

func TestTheLargestRoleOfAllNamesCounts(t *testing.T) {
	parsed, err := ParseRules([]byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range []struct {
		certificate *x509.Certificate
		want        Caller
	}{
		{certificate(t, "spiffe://test/ops/alice"), Caller{"uri:spiffe://test/ops/alice", Dump}},
		{certificate(t, "spiffe://test/opsalice"), Caller{"uri:spiffe://test/opsalice", None}},
		{certificate(t, "", "dashboard.test"), Caller{"dns:dashboard.test", Read}},
		{certificate(t, "", "elsewhere.test", "dashboard.test"), Caller{"dns:dashboard.test", Read}},
		{certificate(t, "spiffe://test/ops/alice", "both.test"), Caller{"uri:spiffe://test/ops/alice", Dump}},
		{certificate(t, ""), Caller{"certificate without names", None}},
	} {
		if got := parsed.ofCertificate(each.certificate); got != each.want {
			t.Errorf("%v in place of %v", got, each.want)
		}
	}
}

func TestBadRulesAreRefused(t *testing.T) {
	for _, text := range []string{"", "access: 7", "access: [{uri: a}]", "access: [{role: dump}]", "access: [{uri: a, dns: b, role: dump}]",
		"access: [{uri: '*', role: dump}]", "access: [{uri: 'a*b', role: dump}]", "access: [{uri: a, role: king}]",
		"access: [{uri: a, role: dump, x: y}]", "loopbakc: dump", "loopback: [dump]"} {
		if parsed, err := ParseRules([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, parsed)
		}
	}
}

func FuzzRules(f *testing.F) {
	f.Add([]byte(rules))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := ParseRules(data)
		if err != nil {
			return
		}
		if got := parsed.ofCertificate(&x509.Certificate{}); got.Role != None {
			t.Errorf("%q gives a certificate without names the role %v", data, got.Role)
		}
	})
}

func TestRulesAreReadAgainAndFaultyOnesChangeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(rules)
	var faults []error
	access, err := OpenAccess(path, func(fault error) { faults = append(faults, fault) })
	if err != nil {
		t.Fatal(err)
	}
	loopback := &http.Request{Header: http.Header{}}
	if got := access.CallerOf(loopback); got != (Caller{"loopback", Read}) {
		t.Errorf("%v", got)
	}
	write("loopback: none\n")
	if got := access.CallerOf(loopback); got.Role != None {
		t.Errorf("%v", got)
	}
	write("loopback: dumpp # and more\n")
	for range 3 {
		if got := access.CallerOf(loopback); got.Role != None {
			t.Errorf("%v", got)
		}
	}
	if len(faults) != 1 {
		t.Errorf("a fault is told once: %v", faults)
	}
	if got := access.CallerOf(&http.Request{TLS: &tls.ConnectionState{}}); got.Role != None {
		t.Errorf("%v", got)
	}
}

func TestOtherSitesAreNotLocal(t *testing.T) {
	for host, want := range map[string]bool{"localhost:7447": true, "127.0.0.1:7447": true, "[::1]:7447": true, "127.0.0.1": true,
		"rebound.example:7447": false, "10.0.0.1:7447": false, "localhost.example": false, "": false} {
		if got := isLocal(&http.Request{Host: host, Header: http.Header{}}); got != want {
			t.Errorf("Host %q: %v", host, got)
		}
	}
	for origin, want := range map[string]bool{"http://127.0.0.1:7447": true, "http://evil.example": false, "null": false} {
		if got := isLocal(&http.Request{Host: "127.0.0.1:7447", Header: http.Header{"Origin": {origin}}}); got != want {
			t.Errorf("Origin %q: %v", origin, got)
		}
	}
}

func TestOnlyLoopbackIsServedWithoutTLS(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:7447": true, "localhost:7447": true, "[::1]:0": true, "0.0.0.0:7447": false,
		":7447": false, "10.0.0.1:7447": false, "gateway:7447": false, "7447": false} {
		if err := CheckListen(address, CallerTLS{}); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := CheckListen("0.0.0.0:7447", CallerTLS{Certificate: "a", Key: "b", Authority: "c"}); err != nil {
		t.Error(err)
	}
}
