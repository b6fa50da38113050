package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// Below the limit that Loki has by default.
	pageEntries = 2000
	// Limits of a page of records, and of one dump.
	maxPageBytes = 16 << 20
	maxBodyBytes = 4 << 20
	// Limit of what is repeated of a store's own words.
	maxSaidBytes  = 300
	maxTokenBytes = 16 << 10
)

// Loki is where it is and how it is asked.
type Loki struct {
	// "http://loki:3100", with what a proxy wants before Loki's own paths.
	URL string
	// For a Loki of several tenants; else empty.
	Tenant string
	// A file with a bearer token, read for each question; or empty.
	TokenFile string
	// Which streams have records of daemons: `{k8s_namespace_name="shop"}`. Empty: those of all services.
	Streams string
}

// loki is a Store.
type loki struct {
	Loki
	client *http.Client
	base   *url.URL
}

// NewLoki returns the store. A mistake is one sentence. Whether it is there shows when it is asked.
func NewLoki(options Loki) (Store, error) {
	base, err := url.Parse(options.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("%q is no address of Loki: write like http://loki.monitoring:3100", options.URL)
	}
	if base.User != nil {
		return nil, errors.New("an address with a password would be shown to all: write a token into a file for --history-loki-token")
	}
	if strings.ContainsFunc(options.Tenant, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%q is no name of a tenant", options.Tenant)
	}
	if options.Streams == "" {
		options.Streams = `{service_name=~".+"}`
	}
	if !strings.HasPrefix(options.Streams, "{") || !strings.HasSuffix(options.Streams, "}") {
		return nil, fmt.Errorf("%q selects no streams: write like {k8s_namespace_name=\"shop\"}", options.Streams)
	}
	store := &loki{Loki: options, base: base.JoinPath("loki/api/v1/query_range")}
	if _, err := store.token(); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 3 * time.Second}
	store.client = &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: 5 * time.Second, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return store, nil
}

func (l *loki) String() string { return "Loki at " + l.base.Host }

// token reads the file anew: a token may be short-lived.
func (l *loki) token() (string, error) {
	if l.TokenFile == "" {
		return "", nil
	}
	file, err := os.Open(l.TokenFile)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxTokenBytes))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s has no token in one line", l.TokenFile)
	}
	return token, nil
}

// line is an entry of a stream.
type line struct {
	labels map[string]string
	ns     int64
	text   string
}

// ask returns the newest entries of a window, in no order.
func (l *loki) ask(ctx context.Context, query string, begin, end int64, limit, maxBytes int) ([]line, error) {
	values := url.Values{"query": {query}, "start": {strconv.FormatInt(begin, 10)}, "end": {strconv.FormatInt(end, 10)},
		"limit": {strconv.Itoa(limit)}, "direction": {"backward"}}
	address := *l.base
	address.RawQuery = values.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fault(BadAnswer, "%s cannot be asked: %v", l, err)
	}
	if l.Tenant != "" {
		request.Header.Set("X-Scope-OrgID", l.Tenant)
	}
	token, err := l.token()
	if err != nil {
		return nil, fault(Unavailable, "the token for %s cannot be read: %v", l, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := l.client.Do(request)
	if err != nil {
		return nil, l.broken(ctx, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, int64(maxBytes)+1))
	if err != nil {
		return nil, l.broken(ctx, err)
	}
	if err := l.refused(response, text); err != nil {
		return nil, err
	}
	if len(text) > maxBytes {
		return nil, fault(BadAnswer, "%s answers more than %d MiB at once", l, maxBytes>>20)
	}
	lines, err := l.parse(text)
	if err != nil {
		return nil, err
	}
	outside := func(one line) bool { return one.ns < begin || one.ns >= end }
	if len(lines) > limit || slices.ContainsFunc(lines, outside) {
		return nil, fault(BadAnswer, "%s answers with entries that were not asked for", l)
	}
	return lines, nil
}

// broken says of a call that did not come to its end.
func (l *loki) broken(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fault(TimedOut, "%s has not answered in time: ask for a smaller window, or give the call more time", l)
	}
	// Without the question, which an error of a URL begins with.
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return fault(Unavailable, "%s cannot be asked: %v", l, err)
}

// refused says of an answer that has no entries.
func (l *loki) refused(response *http.Response, text []byte) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	said := ""
	if kind == "text/plain" || kind == "application/json" {
		said = ": " + printable(string(text), maxSaidBytes)
	}
	switch status := response.StatusCode; {
	case status == http.StatusOK && kind == "application/json":
		return nil
	case status == http.StatusTooManyRequests || status >= 500:
		return fault(Unavailable, "%s answers with HTTP %d%s", l, status, said)
	case status == http.StatusNotFound || status < 400:
		return fault(BadAnswer, "what answers at %s is no Loki: HTTP %d, %q", l.base.Host, status, printable(kind, maxSaidBytes))
	default:
		return fault(Refused, "%s refuses the question with HTTP %d%s", l, status, said)
	}
}

// answer is that of query_range.
type answer struct {
	Status string `json:"status"`
	Data   struct {
		ResultType string `json:"resultType"`
		Result     []struct {
			Stream map[string]string `json:"stream"`
			Values [][]string        `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

func (l *loki) parse(text []byte) ([]line, error) {
	var read answer
	if err := json.Unmarshal(text, &read); err != nil || read.Status != "success" || read.Data.ResultType != "streams" {
		return nil, fault(BadAnswer, "what answers at %s is no Loki: its answer has no streams", l.base.Host)
	}
	var lines []line
	for _, stream := range read.Data.Result {
		for _, value := range stream.Values {
			if len(value) != 2 {
				return nil, fault(BadAnswer, "%s answers with an entry of %d parts", l, len(value))
			}
			ns, err := strconv.ParseInt(value[0], 10, 64)
			if err != nil {
				return nil, fault(BadAnswer, "%s answers with an entry without a time", l)
			}
			lines = append(lines, line{stream.Stream, ns, value[1]})
		}
	}
	return lines, nil
}

// printable is what may stand in a sentence.
func printable(text string, maxBytes int) string {
	if len(text) > maxBytes {
		text = text[:maxBytes]
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, ""))
	return strings.Join(strings.Fields(text), " ")
}
