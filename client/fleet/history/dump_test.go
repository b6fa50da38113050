package history

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"stackd.example/fleet/history/standin"
	"stackd.example/fleet/targets"
)

// When the dump was made, before now.
const sentAgo = 75 * time.Minute

func TestADumpOpensAlsoWhenItsDaemonWasNewer(t *testing.T) {
	json := `{"name":"` + name + `","trigger":"CRASH","ofTheFuture":[{"a":1}],"notes":["one"]}`
	store := lokiOf(t, having(sent(sentAgo, "checkout-1", json), crash(sentAgo, null, "checkout-1", "1", 1)), Loki{})
	dump, err := Get(context.Background(), store, name, targets.Selector{})
	if err != nil || dump.GetName() != name || dump.GetNotes()[0] != "one" {
		t.Fatalf("%v %v", dump, err)
	}
	for wrong, reason := range map[string]Reason{"processes/1-1/dumps/20261121T020000000Z-2": NotFound, "dumps/1": BadName, "": BadName,
		`processes/1-1/dumps/20261121T020000000Z-1" or "": `: BadName, "processes/1-1/dumps/20269921T020000000Z-1": BadName} {
		if _, err := Get(context.Background(), store, wrong, targets.Selector{}); reasonOf(err) != reason {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestADumpThatSeveralPodsHaveIsAskedForByPod(t *testing.T) {
	json := `{"name":"` + name + `","notes":["of %s"]}`
	store := lokiOf(t, having(sent(sentAgo, "checkout-1", fmt.Sprintf(json, "1")), sent(sentAgo, "checkout-2", fmt.Sprintf(json, "2")),
		// Sent twice, by a collector.
		sent(sentAgo, "checkout-2", fmt.Sprintf(json, "2"))), Loki{})
	_, err := Get(context.Background(), store, name, targets.Selector{})
	var fault *Fault
	if !errors.As(err, &fault) || fault.Reason != Ambiguous || len(fault.Pods) != 2 {
		t.Fatalf("%v", err)
	}
	dump, err := Get(context.Background(), store, name, selectorOf(t, "pod=checkout-2"))
	if err != nil || dump.GetNotes()[0] != "of 2" {
		t.Errorf("%v %v", dump, err)
	}
}

func TestADamagedDumpIsNotShown(t *testing.T) {
	good := `{"name":"` + name + `"}`
	with := func(body string) standin.Entry {
		entry := sent(sentAgo, "a", good)
		entry.Line = body
		return entry
	}
	for what, entry := range map[string]standin.Entry{
		"cut off or changed":         with(packed(good)[:len(packed(good))-8]),
		"another digest":             with(packed(`{"name":"` + name + `","notes":["forged"]}`)),
		"not in base64":              with(good),
		"not in gzip":                with(base64.StdEncoding.EncodeToString([]byte(good))),
		"no dump":                    sent(sentAgo, "a", "<html>"),
		"another name":               sent(sentAgo, "a", `{"name":"processes/1-1/dumps/x"}`),
		"larger than a daemon sends": sent(sentAgo, "a", strings.Repeat(" ", maxJSONBytes+1))} {
		_, err := Get(context.Background(), lokiOf(t, having(entry), Loki{}), name, targets.Selector{})
		if reasonOf(err) != Damaged || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Many members of gzip, one after the other, are one file. This one is small, and unpacks to ten times as much as a dump may have.
func TestADumpIsNotUnpackedBeyondWhatADaemonSends(t *testing.T) {
	const members = 80
	member, err := base64.StdEncoding.DecodeString(packed(strings.Repeat(" ", 10*maxJSONBytes/members)))
	if err != nil {
		t.Fatal(err)
	}
	bomb := base64.StdEncoding.EncodeToString(bytes.Repeat(member, members))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = unpack(bomb, Record{Dump: name})
	runtime.ReadMemStats(&after)
	if reasonOf(err) != Damaged || !strings.Contains(err.Error(), "larger than a daemon sends") {
		t.Errorf("%v", err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 10*maxJSONBytes {
		t.Errorf("%d bytes were taken for %d of text", allocated, len(bomb))
	}
}
