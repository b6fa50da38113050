package endpoints

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

func podReference(name string) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Pod", Name: name}
}

func watched(t *testing.T, server *apiServer, service string) *Service {
	t.Helper()
	found, err := Watch(t.Context(), server.config(), service)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// awaitCount waits until so many are known, and returns what is known of each.
func awaitCount(t *testing.T, service *Service, count int) []string {
	t.Helper()
	var names []string
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		found, err := service.Targets(context.Background())
		if err == nil && len(found) == count {
			for _, target := range found {
				names = append(names, target.Name()+" "+target.Address+" "+target.Labels["ready"]+" "+target.Labels["node"]+" "+target.Labels["workload"])
			}
			return names
		}
	}
	found, err := service.Targets(context.Background())
	t.Fatalf("%d targets, %v", len(found), err)
	return nil
}

func TestEndpointsComeAndGo(t *testing.T) {
	server := newAPIServer(t)
	hung := sliceOf(7)
	notReady := false
	hung.Endpoints[0].Conditions.Ready = &notReady
	server.set("stackd-a", hung)
	service := watched(t, server, "shop/stackd")
	if got := awaitCount(t, service, 1)[0]; got != "targets/shop/checkout-7d9f8b6c5d-x0007 10.0.0.7:7443 false node-a checkout-7d9f8b6c5d-x0007" {
		t.Error(got)
	}
	server.set("stackd-b", sliceOf(8, 9))
	awaitCount(t, service, 3)
	server.set("stackd-b", sliceOf(8, 9, 10))
	awaitCount(t, service, 4)
	server.set("stackd-a", nil)
	awaitCount(t, service, 3)
	if server.lists != 1 {
		t.Errorf("listed %d times", server.lists)
	}
}

func TestAnExpiredWatchIsListedAnew(t *testing.T) {
	server := newAPIServer(t)
	server.set("stackd-a", sliceOf(1))
	service := watched(t, server, "shop/stackd")
	awaitCount(t, service, 1)
	// What happens while no watch is there is known by another list.
	server.set("stackd-b", sliceOf(2, 3))
	server.forget()
	awaitCount(t, service, 3)
	server.forget()
	server.set("stackd-b", nil)
	awaitCount(t, service, 1)
}

func TestTheLastEndpointsStayWhileTheServerIsAway(t *testing.T) {
	server := newAPIServer(t)
	server.set("stackd-a", sliceOf(1, 2))
	service := watched(t, server, "shop/stackd")
	awaitCount(t, service, 2)
	server.refuse(http.StatusServiceUnavailable)
	awaitFault := func(wanted bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			found, err := service.Targets(context.Background())
			if len(found) < 2 || time.Now().After(end) {
				t.Fatalf("%v %v", found, err)
			}
			if (err != nil) == wanted {
				return
			}
		}
	}
	awaitFault(true)
	server.set("stackd-b", sliceOf(3))
	server.refuse(0)
	awaitCount(t, service, 3)
	awaitFault(false)
}

func TestWhoMayNotListIsToldSo(t *testing.T) {
	server := newAPIServer(t)
	server.refuse(http.StatusForbidden)
	service := watched(t, server, "shop/stackd")
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, err := service.Targets(context.Background())
		if err == nil || time.Now().After(end) {
			t.Fatalf("%v", err)
		}
		if strings.Contains(err.Error(), "refused: Forbidden") {
			return
		}
	}
}

func TestTenThousandEndpoints(t *testing.T) {
	server := newAPIServer(t)
	for slice := range 100 {
		pods := make([]int, 100)
		for i := range pods {
			pods[i] = slice*100 + i
		}
		server.set(fmt.Sprintf("stackd-%d", slice), sliceOf(pods...))
	}
	service := watched(t, server, "shop/stackd")
	names := awaitCount(t, service, 10_000)
	distinct := map[string]bool{}
	for _, name := range names {
		distinct[name] = true
	}
	if len(distinct) != 10_000 {
		t.Errorf("%d of them differ", len(distinct))
	}
}

func TestWhatIsNoEndpointIsLeftOut(t *testing.T) {
	server := newAPIServer(t)
	names := sliceOf(1)
	names.AddressType = discovery.AddressTypeFQDN
	server.set("stackd-names", names)
	odd := sliceOf(2, 3, 4)
	odd.Endpoints[0].Addresses = nil
	odd.Endpoints[1].Addresses = []string{"http://evil/"}
	server.set("stackd-odd", odd)
	service := watched(t, server, "shop/stackd")
	awaitCount(t, service, 1)

	two := sliceOf(5)
	other := "metrics"
	two.Ports[0].Name = &other
	two.Ports = append(two.Ports, two.Ports[0])
	server.set("stackd-unnamed", two)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		found, err := service.Targets(context.Background())
		if err != nil && strings.Contains(err.Error(), "1 slices have no port named stackd") && len(found) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v %v", found, err)
		}
	}
	numbered := watched(t, server, "shop/stackd:9000")
	for _, name := range awaitCount(t, numbered, 2) {
		if !strings.Contains(name, ":9000 ") {
			t.Error(name)
		}
	}
}

func TestServicesAreNamed(t *testing.T) {
	for _, name := range []string{"shop/stackd", "*/stackd", "shop/stackd:7443", "a/b"} {
		if _, err := parse(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "stackd", "shop/", "shop/*", "shop/stackd:", "shop/stackd:0", "shop/stackd:99999", "Shop/stackd", "shop/stackd/x", "shop/st,a=b"} {
		if _, err := parse(name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestWorkloadsFromNames(t *testing.T) {
	for pod, want := range map[string]string{
		"checkout-7d9f8b6c5d-x2k4z": "checkout",
		"check-out-58b6c5d-x2k4z":   "check-out",
		"stackd-node-x2k4z":         "stackd-node",
		"orders-0":                  "orders",
		"orders-12":                 "orders",
		"orders":                    "orders",
		"x2k4z":                     "x2k4z",
	} {
		if got := workloadOf(pod); got != want {
			t.Errorf("%s: %s", pod, got)
		}
	}
}
