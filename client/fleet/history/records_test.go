package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"stackd.example/fleet/history/standin"
	"stackd.example/fleet/targets"
)

var (
	now      = time.Date(2026, 11, 21, 3, 15, 2, 5, time.UTC)
	lastWeek = Window{now.Add(-7 * 24 * time.Hour), now}
	deadlock = strings.Repeat("d", 32)
	null     = strings.Repeat("0", 32)
)

const name = "processes/1-1/dumps/20261121T020000000Z-1"

// lokiOf asks what a handler answers.
func lokiOf(t *testing.T, handler http.Handler, options Loki) Store {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	options.URL = server.URL
	store, err := NewLoki(options)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func having(entries ...standin.Entry) *standin.Loki { return &standin.Loki{Entries: entries} }

// crash is a record as Loki has it.
func crash(ago time.Duration, fingerprint, pod, version string, number int) standin.Entry {
	return standin.Entry{Ns: now.Add(-ago).UnixNano(), Line: "null dereference in " + version, Labels: map[string]string{
		"stackd_trigger": "CRASH", "stackd_fingerprint": fingerprint,
		"stackd_dump_name": fmt.Sprintf("processes/1-1/dumps/20261121T020000000Z-%d", number), "k8s_pod_name": pod,
		"k8s_namespace_name": "shop", "service_name": "checkout", "service_version": version, "exception_type": "SIGSEGV",
		"exception_stacktrace": "long"}}
}

// sent is a whole dump as Loki has it.
func sent(ago time.Duration, pod, json string) standin.Entry {
	digest := sha256.Sum256([]byte(json))
	return standin.Entry{Ns: now.Add(-ago).UnixNano(), Line: packed(json), Labels: map[string]string{
		"stackd_dump_trigger": "CRASH", "stackd_fingerprint": null, "stackd_dump_name": name, "k8s_pod_name": pod,
		"k8s_namespace_name": "shop", "stackd_dump_digest": "sha256:" + hex.EncodeToString(digest[:])}}
}

func packed(json string) string {
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	writer.Write([]byte(json))
	writer.Close()
	return base64.StdEncoding.EncodeToString(compressed.Bytes())
}

func reasonOf(err error) Reason {
	var fault *Fault
	if errors.As(err, &fault) {
		return fault.Reason
	}
	return ""
}

func selectorOf(t *testing.T, text string) targets.Selector {
	t.Helper()
	selector, err := targets.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// crashesOf lists those of last week.
func crashesOf(store Store, selector targets.Selector) (*Listing, error) {
	return List(context.Background(), store, Question{Kind: Crashes, Window: lastWeek}, selector)
}

func TestCrashesAreMergedByFingerprintOverPods(t *testing.T) {
	hang := crash(time.Minute, deadlock, "checkout-1", "1.4", 9)
	hang.Labels["stackd_trigger"] = "HANG"
	// Two pods have a dump of one name.
	loki := having(crash(3*time.Hour, null, "checkout-1", "1.3", 1), crash(2*time.Hour, null, "checkout-2", "1.4", 1), hang,
		crash(time.Hour, null, "checkout-2", "1.4", 3), crash(4*time.Hour, deadlock, "checkout-3", "1.3", 4),
		// Sent twice, by a collector.
		crash(time.Hour, null, "checkout-2", "1.4", 3), crash(8*24*time.Hour, null, "old", "1.0", 5), sent(2*time.Hour, "checkout-2", "{}"))
	store := lokiOf(t, loki, Loki{})
	listing, err := crashesOf(store, targets.Selector{})
	if err != nil || len(listing.Groups) != 2 || listing.Count != 4 || len(listing.Notes) != 0 {
		t.Fatalf("%v %v", listing, err)
	}
	one := listing.Groups[0]
	if one.Fingerprint != null || one.Count != 3 || !one.FirstSeenTime.AsTime().Equal(now.Add(-3*time.Hour)) ||
		!one.LastSeenTime.AsTime().Equal(now.Add(-time.Hour)) || one.Cause != "SIGSEGV" || one.Explanation != "null dereference in 1.4" {
		t.Errorf("%v", one)
	}
	if one.PodCount != 2 || one.Pods[0].Name != "shop/checkout-2" || one.Pods[0].Count != 2 || one.Versions[0].Name != "1.4" ||
		one.Versions[1].Name != "1.3" || one.Services[0].Count != 3 {
		t.Errorf("%v", one)
	}
	if len(one.Dumps) != 1 || one.Dumps[0].Dump != name || one.Dumps[0].Pod != "checkout-2" || one.Dumps[0].Target != "targets/shop/checkout-2" {
		t.Errorf("%v", one.Dumps)
	}
	for selector, count := range map[string]int64{"pod=checkout-2": 2, "version!=1.4": 2, "service=pay": 0, "namespace=shop,pod=checkout-*": 4} {
		if chosen, err := crashesOf(store, selectorOf(t, selector)); err != nil || chosen.Count != count {
			t.Errorf("%s: %v %v", selector, chosen, err)
		}
	}
	hangs, err := List(context.Background(), store, Question{Kind: Hangs, Window: lastWeek, Fingerprint: deadlock}, targets.Selector{})
	if err != nil || hangs.Count != 1 {
		t.Errorf("%v %v", hangs, err)
	}
	// Stacks and bodies stay where they are.
	query := loki.Asked[0].URL.Query().Get("query")
	if !strings.HasPrefix(query, `{service_name=~".+"} | `) || !strings.Contains(query, " | keep ") || strings.Contains(query, "stacktrace") {
		t.Error(query)
	}
}

func TestOutsideKubernetesTheHostStandsForThePod(t *testing.T) {
	entry := crash(time.Hour, null, "", "1", 1)
	entry.Labels["host_name"] = "vm-7"
	delete(entry.Labels, "k8s_namespace_name")
	listing, err := crashesOf(lokiOf(t, having(entry), Loki{}), selectorOf(t, "pod=vm-7"))
	if err != nil || listing.Count != 1 || listing.Groups[0].Pods[0].Name != "vm-7" {
		t.Errorf("%v %v", listing, err)
	}
}

func TestAllPagesOfTheStoreAreRead(t *testing.T) {
	loki := having()
	for i := range 3*pageEntries + 7 {
		// Seven at an instant, so that pages end within some.
		loki.Entries = append(loki.Entries, crash(time.Duration(1+i/7)*time.Millisecond, null, "checkout-1", "1", i))
	}
	listing, err := crashesOf(lokiOf(t, loki, Loki{}), targets.Selector{})
	if err != nil || listing.Count != 3*pageEntries+7 || len(loki.Asked) != 4 {
		t.Errorf("%v %v, %d questions", listing, err, len(loki.Asked))
	}
}

func TestWhatAStoreHasTooMuchOfIsLeftOutWithANote(t *testing.T) {
	loki := having()
	for i := range pageEntries + 5 {
		loki.Entries = append(loki.Entries, crash(time.Hour, null, "checkout-1", "1", i))
	}
	listing, err := crashesOf(lokiOf(t, loki, Loki{}), targets.Selector{})
	if err != nil || listing.Count != pageEntries || len(listing.Notes) != 1 || !strings.Contains(listing.Notes[0], "this instant") {
		t.Errorf("%v %v", listing, err)
	}
	listing, err = crashesOf(endlessStore{}, targets.Selector{})
	if err != nil || listing.Count != maxRecords || len(listing.Notes) != 1 || !strings.Contains(listing.Notes[0], "only the newest 50000") {
		t.Errorf("%v %v", listing, err)
	}
}

// endlessStore has always one more crash.
type endlessStore struct{ Store }

func (endlessStore) Records(_ context.Context, _ Question, each func(Record) bool) ([]string, error) {
	for i := 0; each(Record{Dump: fmt.Sprint(i)}); i++ {
	}
	return nil, nil
}

func TestEntriesThatAreNoRecordsAreCountedInANote(t *testing.T) {
	wrongPrint, wrongName, wrongDigest := crash(1, "<script>", "a", "1", 1), crash(2, null, "a", "1", 2), sent(3, "a", "{}")
	wrongName.Labels["stackd_dump_name"] = "../../etc/passwd"
	wrongDigest.Labels["stackd_dump_digest"] = "sha256:x"
	odd := crash(4, null, "p\x1b[31m"+strings.Repeat("x", 1000), "1", 4)
	odd.Line = "two\nlines\x00" + strings.Repeat("y", 10_000)
	listing, err := crashesOf(lokiOf(t, having(wrongPrint, wrongName, wrongDigest, odd), Loki{}), targets.Selector{})
	if err != nil || listing.Count != 1 || len(listing.Notes) != 1 || !strings.HasPrefix(listing.Notes[0], "3 entries") {
		t.Fatalf("%v %v", listing, err)
	}
	one := listing.Groups[0]
	if strings.ContainsRune(one.Pods[0].Name, 0x1b) || len(one.Pods[0].Name) > 300 || len(one.Explanation) > maxExplanationBytes ||
		!strings.HasPrefix(one.Explanation, "two lines y") {
		t.Errorf("%v", one)
	}
}
