// Package gateway serves stackd.v1.Fleet: over gRPC, gRPC-Web and Connect on one port.
package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// Role is what a caller may do; each may do what those before it may.
type Role int

// The roles of a daemon's --access: the gateway takes the same file.
const (
	None Role = iota
	Read
	Dump
	Admin
)

var roleNames = []string{"none", "read", "dump", "admin"}

func (r Role) String() string { return roleNames[r] }

// UnmarshalYAML reads the name of a role.
func (r *Role) UnmarshalYAML(node *yaml.Node) error {
	i := slices.Index(roleNames, node.Value)
	if i < 0 {
		return fmt.Errorf("line %d: %q is no role: none, read, dump or admin", node.Line, node.Value)
	}
	*r = Role(i)
	return nil
}

// Rules say who may do what:
//
//	access:
//	  - {uri: "spiffe://cluster.local/ns/ops/sa/*", role: dump}
//	  - {dns: dashboard.ops.example, role: read}
//	loopback: dump
type Rules struct {
	Access   []Rule `yaml:"access"`
	Loopback *Role  `yaml:"loopback"`
}

// Rule is about certificates with a name.
type Rule struct {
	URI  string `yaml:"uri"`
	DNS  string `yaml:"dns"`
	Role *Role  `yaml:"role"`
}

// ParseRules reads the form of a daemon's --access, but for what a gateway has not: users of a Unix socket, and limits.
func ParseRules(data []byte) (*Rules, error) {
	if strings.TrimSpace(string(data)) == "" {
		return nil, errors.New("the file is empty")
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	decoder.KnownFields(true)
	rules := &Rules{}
	if err := decoder.Decode(rules); err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	for i, rule := range rules.Access {
		if (rule.URI == "") == (rule.DNS == "") || rule.Role == nil {
			return nil, fmt.Errorf("entry %d of access needs one of uri and dns, and a role", i+1)
		}
		pattern := rule.URI + rule.DNS
		if star := strings.IndexByte(pattern, '*'); pattern == "*" || star >= 0 && star != len(pattern)-1 {
			return nil, fmt.Errorf("%q: a \"*\" stands at the end only, and not alone", pattern)
		}
	}
	return rules, nil
}

// Access reads the rules of a file again when it changes. A file that has become faulty changes nothing.
type Access struct {
	path   string
	report func(error)
	// nil: tokens of callers are not looked at.
	tokens *tokens

	mutex   sync.Mutex
	rules   *Rules
	changed time.Time
	size    int64
}

// OpenAccess reads the rules. Without a path, loopback may dump, and no certificate has a role.
func OpenAccess(path string, report func(error)) (*Access, error) {
	access := &Access{path: path, report: report, rules: &Rules{}}
	if path == "" {
		return access, nil
	}
	return access, access.read()
}

// UseTokens has callers known by their tokens too: a call that shows one is that token's, whatever the connection is.
func (a *Access) UseTokens(reviewer Reviewer) { a.tokens = &tokens{reviewer: reviewer} }

func (a *Access) read() error {
	info, err := os.Stat(a.path)
	if err != nil {
		return err
	}
	if info.ModTime().Equal(a.changed) && info.Size() == a.size {
		return nil
	}
	data, err := os.ReadFile(a.path)
	if err != nil {
		return err
	}
	a.changed, a.size = info.ModTime(), info.Size()
	rules, err := ParseRules(data)
	if err != nil {
		return fmt.Errorf("%s: %w", a.path, err)
	}
	a.rules = rules
	return nil
}

func (a *Access) current() *Rules {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.path != "" {
		if err := a.read(); err != nil {
			a.report(err)
		}
	}
	return a.rules
}

// Caller is who calls, and what that may do.
type Caller struct {
	Name string
	Role Role
}

// CallerOf looks at the connection of a call. Without TLS only loopback is served.
func (a *Access) CallerOf(request *http.Request) Caller {
	rules := a.current()
	if request.TLS == nil {
		role := Dump
		if rules.Loopback != nil {
			role = *rules.Loopback
		}
		return Caller{"loopback", role}
	}
	if len(request.TLS.PeerCertificates) == 0 {
		return Caller{"unauthenticated", None}
	}
	return rules.ofCertificate(request.TLS.PeerCertificates[0])
}

// ofCertificate gives the largest role of all rules that fit.
func (r *Rules) ofCertificate(certificate *x509.Certificate) Caller {
	caller := Caller{Name: "certificate without names"}
	look := func(kind, name string, pattern func(Rule) string) {
		if caller.Name == "certificate without names" {
			caller.Name = kind + ":" + name
		}
		for _, rule := range r.Access {
			if fits(pattern(rule), name) && *rule.Role > caller.Role {
				caller = Caller{kind + ":" + name, *rule.Role}
			}
		}
	}
	for _, uri := range certificate.URIs {
		look("uri", uri.String(), func(rule Rule) string { return rule.URI })
	}
	for _, name := range certificate.DNSNames {
		look("dns", name, func(rule Rule) string { return rule.DNS })
	}
	return caller
}

func fits(pattern, name string) bool {
	begin, star := strings.CutSuffix(pattern, "*")
	return pattern != "" && (star && strings.HasPrefix(name, begin) || pattern == name)
}

type (
	callerKey struct{}
	viewKey   struct{}
)

func callerOf(ctx context.Context) Caller {
	caller, _ := ctx.Value(callerKey{}).(Caller)
	return caller
}

func viewOf(ctx context.Context) *view {
	seen, _ := ctx.Value(viewKey{}).(*view)
	return seen
}

// isLocal is whether a browser's page of another site cannot have made the call. A name that was bound to this address anew
// shows in Host, another site in Origin.
func isLocal(request *http.Request) bool {
	host := request.Host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		host = bare
	}
	host = strings.Trim(host, "[]")
	address := net.ParseIP(host)
	if host != "localhost" && (address == nil || !address.IsLoopback()) {
		return false
	}
	origin := request.Header.Get("Origin")
	return origin == "" || origin == "http://"+request.Host
}
