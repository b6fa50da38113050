package targets

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSelectorsMeanWhatKubectlMeans(t *testing.T) {
	labels := map[string]string{"pod": "checkout-7d9f-x2k", "node": "a", "canary": ""}
	for text, want := range map[string]bool{
		"":                               true,
		"pod=checkout-7d9f-x2k":          true,
		"pod==checkout-7d9f-x2k":         true,
		"pod=checkout":                   false,
		"pod=checkout-*":                 true,
		"pod=*-x2k":                      true,
		"pod=*7d9f*":                     true,
		"pod=*7d9f":                      false,
		"node!=a":                        false,
		"node!=b":                        true,
		"zone!=b":                        true,
		"zone=b":                         false,
		"node in (b, a)":                 true,
		"node in (b,c)":                  false,
		"node in(a)":                     true,
		"node notin (b,c)":               true,
		"node notin (a)":                 false,
		"canary":                         true,
		"!canary":                        false,
		"!zone":                          true,
		"zone":                           false,
		"pod=checkout-*, node in (a,b)":  true,
		"pod=checkout-*, node in (b,c)":  false,
		"pod=checkout-*,node=a,!missing": true,
	} {
		selector, err := ParseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := selector.Matches(labels); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestBadSelectorsAreNamed(t *testing.T) {
	for _, text := range []string{",", "a=b,", "=b", "a in b", "a in (b", "a inside (b)", "a=b=c", "a b", "!", strings.Repeat("a", 5000),
		strings.Repeat("a,", 100) + "a"} {
		if _, err := ParseSelector(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestManyStarsTakeLittleTime(t *testing.T) {
	begin := time.Now()
	if matches(strings.Repeat("a*", 2000)+"b", strings.Repeat("a", 4000)) {
		t.Error("there is no b")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzSelector(f *testing.F) {
	f.Add("pod in (a,b),c!=d", "a")
	f.Fuzz(func(_ *testing.T, text, value string) {
		if selector, err := ParseSelector(text); err == nil {
			selector.Matches(map[string]string{"pod": value})
		}
	})
}

func TestTheFormOfFileSDIsRead(t *testing.T) {
	for _, text := range []string{
		`[{"targets": ["10.0.0.1:7443", "[fd00::1]:7443"], "labels": {"namespace": "shop", "__scheme__": "https"}}]`,
		"- targets: [10.0.0.1:7443, '[fd00::1]:7443']\n  labels:\n    __meta_kubernetes_namespace: shop\n",
	} {
		targets, err := ParseFile([]byte(text))
		if err != nil || len(targets) != 2 || targets[1].Address != "[fd00::1]:7443" || len(targets[0].Labels) != 1 ||
			targets[0].Labels["namespace"] != "shop" {
			t.Errorf("%s: %v %v", text, targets, err)
		}
	}
	if targets, err := ParseFile([]byte("[]")); err != nil || len(targets) != 0 {
		t.Errorf("an empty list: %v %v", targets, err)
	}
}

func TestBadFilesAreNamed(t *testing.T) {
	for _, text := range []string{"", " \n", "{", "<html></html>", `[{"targets": ["10.0.0.1"]}]`, `[{"targets": [":7443"]}]`,
		`[{"targets": ["10.0.0.1:0"]}]`, `[{"targets": ["a/b:7443"]}]`, `[{"targets": ["u@h:7443"]}]`, `[{"targets": ["h:99999"]}]`} {
		if targets, err := ParseFile([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, targets)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(`[{"targets": ["10.0.0.1:7443"], "labels": {"pod": "x"}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		targets, err := ParseFile(data)
		for _, target := range targets {
			if err != nil || target.Address == "" {
				t.Errorf("%q: %v %v", data, targets, err)
			}
		}
	})
}

func TestAFileIsReadAgainAndAFaultyOneChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tg_a.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := NewFile(filepath.Join(filepath.Dir(path), "tg_*.json"))
	if _, err := source.Targets(context.Background()); err == nil {
		t.Error("there is no file yet")
	}
	write(`[{"targets": ["10.0.0.1:7443"], "labels": {"pod": "one"}}]`)
	first, err := source.Targets(context.Background())
	if err != nil || len(first) != 1 || first[0].Name() != "targets/one" {
		t.Errorf("%v %v", first, err)
	}
	write(`[{"targets": ["10.0.0.1:7443", "10.0.0.2:7443"]}]`)
	if second, err := source.Targets(context.Background()); err != nil || len(second) != 2 {
		t.Errorf("%v %v", second, err)
	}
	write(`[{"targets": ["10.0.0.1:7443", "10.0`)
	third, err := source.Targets(context.Background())
	if err == nil || len(third) != 2 {
		t.Errorf("%v %v", third, err)
	}
	list, err := ListAll(context.Background(), []Source{source})
	if err != nil || len(list.Targets) != 2 || len(list.Problems) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

func TestDNSIsAskedOnceInAWhile(t *testing.T) {
	source, err := NewDNS("dns:///stackd.shop.svc:7443")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	asked := 0
	var fault error
	source.now = func() time.Time { return now }
	source.lookup = func(_ context.Context, host string) ([]string, error) {
		asked++
		if host != "stackd.shop.svc" {
			t.Errorf("asked for %q", host)
		}
		return []string{"10.0.0.2", "fd00::1"}, fault
	}
	for range 2 {
		targets, err := source.Targets(context.Background())
		if err != nil || len(targets) != 2 || targets[1].Address != "[fd00::1]:7443" || targets[1].Name() != "targets/[fd00::1]:7443" {
			t.Errorf("%v %v", targets, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	now, fault = now.Add(dnsKeep), errors.New("no such host")
	if targets, err := source.Targets(context.Background()); len(targets) != 2 || err == nil || asked != 2 {
		t.Errorf("%v %v %d", targets, err, asked)
	}
	for _, url := range []string{"dns://8.8.8.8/a:1", "stackd:7443", "dns:///stackd", "dns:///:7443"} {
		if _, err := NewDNS(url); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
}

func TestTargetsAreInOrderAndOnce(t *testing.T) {
	one := fixed{{Address: "10.0.0.2:1", Labels: map[string]string{"pod": "b", "namespace": "shop"}}, {Address: "10.0.0.3:1"}}
	two := fixed{{Address: "10.0.0.2:1"}, {Address: "10.0.0.1:1", Labels: map[string]string{"pod": "a", "namespace": "shop"}}}
	list, err := ListAll(context.Background(), []Source{one, two})
	var names []string
	for _, target := range list.Targets {
		names = append(names, target.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != "targets/10.0.0.3:1 targets/shop/a targets/shop/b" {
		t.Errorf("%s %v", got, err)
	}
	if _, err := ListAll(context.Background(), []Source{NewFile("/nonexistent/x.json")}); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}

type fixed []Target

func (f fixed) Targets(context.Context) ([]Target, error) { return f, nil }
func (f fixed) String() string                            { return "fixed" }
