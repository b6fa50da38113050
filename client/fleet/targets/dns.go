package targets

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// For how long an answer of DNS is used again.
const dnsKeep = 5 * time.Second

// DNS is a source of all addresses of one name, such as a headless Service: "dns:///stackd.shop.svc:7443".
type DNS struct {
	host, port string
	lookup     func(ctx context.Context, host string) ([]string, error)
	now        func() time.Time

	mutex   sync.Mutex
	asked   time.Time
	targets []Target
}

// NewDNS returns a source; nothing is asked yet.
func NewDNS(url string) (*DNS, error) {
	address, found := strings.CutPrefix(url, "dns:///")
	if !found {
		return nil, fmt.Errorf("%q: write like dns:///stackd.shop.svc:7443", url)
	}
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return &DNS{host: host, port: port, lookup: net.DefaultResolver.LookupHost, now: time.Now}, nil
}

func (d *DNS) String() string { return "dns:///" + net.JoinHostPort(d.host, d.port) }

// Targets asks DNS, if it was not asked a moment ago. Where it does not answer, the addresses of before are there still.
func (d *DNS) Targets(ctx context.Context) ([]Target, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.targets != nil && d.now().Sub(d.asked) < dnsKeep {
		return d.targets, nil
	}
	addresses, err := d.lookup(ctx, d.host)
	if err != nil {
		return d.targets, err
	}
	targets := make([]Target, 0, len(addresses))
	for _, address := range addresses {
		targets = append(targets, Target{Address: net.JoinHostPort(address, d.port)})
	}
	d.asked, d.targets = d.now(), targets
	return targets, nil
}
