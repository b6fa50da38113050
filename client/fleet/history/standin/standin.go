// Package standin is a Loki for tests: it knows as much of LogQL as a gateway asks.
package standin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Entry is a line with its labels, those of its stream among them.
type Entry struct {
	Ns     int64
	Line   string
	Labels map[string]string
}

// Loki answers query_range out of its entries.
type Loki struct {
	Entries []Entry
	// The questions that were asked.
	Asked []*http.Request
}

var filter = regexp.MustCompile(`^(\w+)(=|!=)"([^"]*)"$`)

func (l *Loki) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	l.Asked = append(l.Asked, request)
	values := request.URL.Query()
	var begin, end int64
	var limit int
	_, err := fmt.Sscan(values.Get("start")+" "+values.Get("end")+" "+values.Get("limit"), &begin, &end, &limit)
	if request.URL.Path != "/loki/api/v1/query_range" || values.Get("direction") != "backward" || err != nil {
		http.Error(writer, "404 page not found", http.StatusNotFound)
		return
	}
	var found []Entry
	for _, entry := range l.Entries {
		if entry.Ns < begin || entry.Ns >= end {
			continue
		}
		changed, fits, err := run(values.Get("query"), entry)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		if fits {
			found = append(found, changed)
		}
	}
	slices.SortStableFunc(found, func(a, b Entry) int { return cmp.Compare(b.Ns, a.Ns) })
	answer(writer, found[:min(limit, len(found))])
}

// answer writes each entry as a stream of its own.
func answer(writer http.ResponseWriter, entries []Entry) {
	streams := []any{}
	for _, entry := range entries {
		streams = append(streams, map[string]any{"stream": entry.Labels, "values": [][]string{{strconv.FormatInt(entry.Ns, 10), entry.Line}}})
	}
	writer.Header().Set("Content-Type", "application/json; charset=UTF-8")
	// A caller that left is none of its business.
	_ = json.NewEncoder(writer).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "streams", "result": streams}})
}

// run puts an entry through the stages of a query.
func run(query string, entry Entry) (Entry, bool, error) {
	for _, stage := range strings.Split(query, " | ")[1:] {
		switch {
		case strings.HasPrefix(stage, "keep "):
			kept := map[string]string{}
			for _, label := range strings.Split(strings.TrimPrefix(stage, "keep "), ", ") {
				if value, has := entry.Labels[label]; has {
					kept[label] = value
				}
			}
			entry.Labels = kept
		case stage == "line_format `{{if .stackd_dump_digest}}{{else}}{{__line__}}{{end}}`":
			if entry.Labels["stackd_dump_digest"] != "" {
				entry.Line = ""
			}
		default:
			fits := false
			for _, one := range strings.Split(stage, " or ") {
				parts := filter.FindStringSubmatch(one)
				if parts == nil {
					return entry, false, fmt.Errorf("parse error: unexpected %q", one)
				}
				fits = fits || (entry.Labels[parts[1]] == parts[3]) == (parts[2] == "=")
			}
			if !fits {
				return entry, false, nil
			}
		}
	}
	return entry, true, nil
}
