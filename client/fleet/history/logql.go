package history

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Attributes of records, as Loki names them when they come by OTLP.
const (
	triggerLabel     = "stackd_trigger"
	dumpTriggerLabel = "stackd_dump_trigger"
	fingerprintLabel = "stackd_fingerprint"
	dumpLabel        = "stackd_dump_name"
	digestLabel      = "stackd_dump_digest"
	exceptionLabel   = "exception_type"
	hangLabel        = "stackd_hang_cause"
	hostLabel        = "host_name"
)

// What selectors call the attributes of a record.
var named = map[string]string{
	"pod": "k8s_pod_name", "namespace": "k8s_namespace_name", "node": "k8s_node_name", "container": "k8s_container_name",
	"service": "service_name", "version": "service_version",
}

// shortened leaves stacks and bodies of dumps in the store.
func shortened(query string) string {
	kept := []string{fingerprintLabel, dumpLabel, digestLabel, exceptionLabel, hangLabel, hostLabel}
	kept = append(kept, slices.Sorted(maps.Values(named))...)
	return query + " | line_format `{{if ." + digestLabel + "}}{{else}}{{__line__}}{{end}}` | keep " + strings.Join(kept, ", ")
}

const (
	maxNameBytes        = 253
	maxExplanationBytes = 1024
)

var (
	fingerprintForm = regexp.MustCompile(`^([0-9a-f]{32})?$`)
	digestForm      = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

func (l *loki) query(question Question) string {
	query := l.Streams
	if question.Kind != "" {
		kind := strconv.Quote(string(question.Kind))
		query += " | " + triggerLabel + "=" + kind + " or " + dumpTriggerLabel + "=" + kind
	} else {
		query += " | " + digestLabel + `!=""`
	}
	if question.Fingerprint != "" {
		query += " | " + fingerprintLabel + "=" + strconv.Quote(question.Fingerprint)
	}
	if question.Dump != "" {
		query += " | " + dumpLabel + "=" + strconv.Quote(question.Dump)
	}
	return query
}

// Records reads page after page. A page goes back from the oldest entry of the one before, which comes again.
func (l *loki) Records(ctx context.Context, question Question, each func(Record) bool) ([]string, error) {
	query := shortened(l.query(question))
	begin, end := question.Window.Begin.UnixNano(), question.Window.End.UnixNano()
	var notes []string
	senseless := 0
	for begin < end {
		lines, err := l.ask(ctx, query, begin, end, pageEntries, maxPageBytes)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(b.ns, a.ns) })
		for _, one := range lines {
			record, err := recordOf(one)
			if err != nil {
				senseless++
				continue
			}
			if !each(record) {
				return noted(notes, senseless), nil
			}
		}
		if len(lines) < pageEntries {
			break
		}
		oldest := lines[len(lines)-1].ns
		if oldest+1 >= end {
			notes = append(notes, fmt.Sprintf("there are more records at %s than the store gives at once: the rest of this instant is not counted",
				time.Unix(0, oldest).UTC().Format(time.RFC3339)))
			oldest = end - 2
		}
		end = oldest + 1
	}
	return noted(notes, senseless), nil
}

func noted(notes []string, senseless int) []string {
	if senseless == 0 {
		return notes
	}
	return append(notes, fmt.Sprintf("%d entries of the store are no records of a daemon, and are not counted", senseless))
}

// IsFingerprint is whether a text is one, or none.
func IsFingerprint(text string) bool { return fingerprintForm.MatchString(text) }

// recordOf checks what the store gives.
func recordOf(one line) (Record, error) {
	record := Record{Time: time.Unix(0, one.ns), Fingerprint: one.labels[fingerprintLabel], Dump: one.labels[dumpLabel],
		Digest: one.labels[digestLabel], Labels: map[string]string{}}
	if !IsFingerprint(record.Fingerprint) || !dumpName.MatchString(record.Dump) {
		return record, fmt.Errorf("no fingerprint or no name of a dump")
	}
	if record.Digest != "" && !digestForm.MatchString(record.Digest) {
		return record, fmt.Errorf("no digest")
	}
	if record.Digest == "" {
		record.Explanation = printable(one.text, maxExplanationBytes)
		record.Cause = printable(cmp.Or(one.labels[exceptionLabel], one.labels[hangLabel]), maxNameBytes)
	}
	for name, label := range named {
		if value := printable(one.labels[label], maxNameBytes); value != "" {
			record.Labels[name] = value
		}
	}
	if host := printable(one.labels[hostLabel], maxNameBytes); record.Labels["pod"] == "" && host != "" {
		record.Labels["pod"] = host
	}
	return record, nil
}

// Body asks for the one entry, at the time of its record.
func (l *loki) Body(ctx context.Context, record Record) (string, error) {
	query := l.query(Question{Dump: record.Dump}) + " | " + digestLabel + "=" + strconv.Quote(record.Digest)
	lines, err := l.ask(ctx, query, record.Time.UnixNano(), record.Time.UnixNano()+1, 1, maxBodyBytes)
	if err != nil {
		return "", err
	}
	if len(lines) == 0 {
		return "", fault(NotFound, "%s has no longer the dump %s", l, record.Dump)
	}
	return lines[0].text, nil
}
