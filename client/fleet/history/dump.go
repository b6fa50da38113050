package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/targets"
)

const (
	// Limit of the JSON. A daemon sends no dump that has more than 4 MiB as a message.
	maxJSONBytes = 48 << 20
	maxDumpBytes = 4<<20 - 64<<10
	// The time in a dump's name is that of its record, but for clocks that were set back.
	nameSlack = time.Hour
	// Pods that have a dump of one name, in an error.
	maxChoices = 10
)

var dumpName = regexp.MustCompile(`^processes/[A-Za-z0-9._-]{1,64}/dumps/([0-9]{8}T[0-9]{6})[A-Za-z0-9._-]{1,32}$`)

// windowOf is when a dump of this name was made.
func windowOf(name string) (Window, error) {
	parts := dumpName.FindStringSubmatch(name)
	if parts == nil {
		return Window{}, fault(BadName, "the name of a dump is like processes/4711-1/dumps/20261121T031502123Z-1")
	}
	made, err := time.Parse("20060102T150405", parts[1])
	if err != nil {
		return Window{}, fault(BadName, "%s has no time in its name", name)
	}
	return Window{made.Add(-nameSlack), made.Add(nameSlack)}, nil
}

// Get finds the dump of a name, and opens it. If several pods have one, the selector must mean one of them.
func Get(ctx context.Context, store Store, name string, selector targets.Selector) (*stackdv1.Dump, error) {
	window, err := windowOf(name)
	if err != nil {
		return nil, err
	}
	var found []Record
	known := map[string]bool{}
	_, err = store.Records(ctx, Question{Window: window, Dump: name}, func(record Record) bool {
		if record.Dump == name && record.Digest != "" && !known[record.key()] && selector.Matches(record.Labels) {
			known[record.key()] = true
			found = append(found, record)
		}
		return len(found) <= maxChoices
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fault(NotFound, "%s has no dump %s: daemons send whole dumps with --otlp-dumps alone, the first ones of a fingerprint",
			store, name)
	case len(found) > 1:
		ambiguous := fault(Ambiguous, "%d pods or more have a dump of this name: say which by the selector", len(found))
		for _, record := range found {
			ambiguous.Pods = append(ambiguous.Pods, record.place())
		}
		return nil, ambiguous
	}
	body, err := store.Body(ctx, found[0])
	if err != nil {
		return nil, err
	}
	return unpack(body, found[0])
}

// unpack undoes what the daemon did: JSON, gzip, base64. What is not as the record says is damaged.
func unpack(body string, record Record) (*stackdv1.Dump, error) {
	damaged := func(what string) error {
		return fault(Damaged, "%s of %s is damaged in the store: %s", record.Dump, record.place(), what)
	}
	compressed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(body))
	if err != nil {
		return nil, damaged("it is not in base64")
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, damaged("it is not in gzip")
	}
	json, err := io.ReadAll(io.LimitReader(reader, maxJSONBytes+1))
	if err != nil {
		return nil, damaged("its compressed form is cut off or changed")
	}
	if len(json) > maxJSONBytes {
		return nil, damaged("it is larger than a daemon sends")
	}
	digest := sha256.Sum256(json)
	if "sha256:"+hex.EncodeToString(digest[:]) != record.Digest {
		return nil, damaged("it has another digest than its record says")
	}
	dump := &stackdv1.Dump{}
	// A daemon may be newer than this.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(json, dump); err != nil {
		return nil, damaged("it is no dump")
	}
	if dump.GetName() != record.Dump {
		return nil, damaged("it has another name")
	}
	if proto.Size(dump) > maxDumpBytes {
		return nil, damaged("it is larger than a daemon sends")
	}
	return dump, nil
}
