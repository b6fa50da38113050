package history

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stackd.example/fleet/targets"
)

func says(status int, kind, text string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", kind)
		writer.WriteHeader(status)
		fmt.Fprint(writer, text)
	}
}

// streams is an answer with these values.
func streams(values string) http.HandlerFunc {
	return says(200, "application/json", `{"status":"success","data":{"resultType":"streams","result":[{"stream":{},"values":[`+values+`]}]}}`)
}

func endless(writer http.ResponseWriter, _ *http.Request) {
	writer.Header().Set("Content-Type", "application/json")
	for piece := []byte(strings.Repeat(" ", 1<<20)); ; {
		if _, err := writer.Write(piece); err != nil {
			return
		}
	}
}

func silent(writer http.ResponseWriter, request *http.Request) {
	writer.(http.Flusher).Flush()
	<-request.Context().Done()
}

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestAStoreThatDoesNotAnswerAsLokiIsNamed(t *testing.T) {
	for what, one := range map[string]struct {
		handler http.HandlerFunc
		reason  Reason
		word    string
	}{
		"a page":        {says(200, "text/html", "<h1>welcome</h1>"), BadAnswer, `HTTP 200, "text/html"`},
		"a redirect":    {says(302, "text/html", ""), BadAnswer, "HTTP 302"},
		"another":       {says(404, "text/plain", "404 page not found"), BadAnswer, "HTTP 404"},
		"no JSON":       {says(200, "application/json", "<h1>"), BadAnswer, "no streams"},
		"a matrix":      {says(200, "application/json", `{"status":"success","data":{"resultType":"matrix"}}`), BadAnswer, "no streams"},
		"no time":       {streams(`["x","y"]`), BadAnswer, "without a time"},
		"too few parts": {streams(`["1"]`), BadAnswer, "1 parts"},
		"other times":   {streams(`["1","y"]`), BadAnswer, "not asked for"},
		"limits":        {says(400, "text/plain", "the query time range\nexceeds the limit"), Refused, "HTTP 400: the query time range exceeds the limit"},
		"no tenant":     {says(401, "text/plain", "no org id"), Refused, "no org id"},
		"an error":      {says(500, "text/plain", "empty ring"), Unavailable, "HTTP 500: empty ring"},
		"too often":     {says(429, "text/plain", "later"), Unavailable, "later"},
		"a hang-up":     {hangsUp, Unavailable, "cannot be asked"},
		"too much":      {endless, BadAnswer, "more than 16 MiB"},
		"silence":       {silent, TimedOut, "in time"},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			if one.reason == TimedOut {
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			}
			defer cancel()
			_, err := List(ctx, lokiOf(t, one.handler, Loki{}), Question{Kind: Crashes, Window: lastWeek}, targets.Selector{})
			if reasonOf(err) != one.reason || !strings.Contains(err.Error(), one.word) || strings.Contains(err.Error(), "welcome") {
				t.Errorf("%v", err)
			}
		})
	}
	store, err := NewLoki(Loki{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crashesOf(store, targets.Selector{}); reasonOf(err) != Unavailable || strings.Contains(err.Error(), "query") {
		t.Errorf("%v", err)
	}
}

func TestTenantAndTokenGoWithEachQuestion(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	loki := having()
	ask := func(store Store, text string) error {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := crashesOf(store, targets.Selector{})
		return err
	}
	if err := os.WriteFile(token, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := lokiOf(t, loki, Loki{Tenant: "stackd", TokenFile: token, Streams: `{k8s_namespace_name="shop"}`})
	for i, text := range []string{"first\n", "second"} {
		if err := ask(store, text); err != nil {
			t.Fatal(err)
		}
		header := loki.Asked[i].Header
		if header.Get("Authorization") != "Bearer "+strings.TrimSpace(text) || header.Get("X-Scope-OrgID") != "stackd" {
			t.Errorf("%v", header)
		}
	}
	if query := loki.Asked[0].URL.Query().Get("query"); !strings.HasPrefix(query, `{k8s_namespace_name="shop"} | `) {
		t.Error(query)
	}
	if err := ask(store, ""); reasonOf(err) != Unavailable || !strings.Contains(err.Error(), "no token") {
		t.Errorf("%v", err)
	}
}

func TestAMistakeIsASentence(t *testing.T) {
	for _, one := range []struct {
		options Loki
		word    string
	}{
		{Loki{URL: "loki:3100"}, "no address of Loki"},
		{Loki{URL: "http://"}, "no address of Loki"},
		{Loki{URL: "ftp://loki"}, "no address of Loki"},
		{Loki{URL: "http://loki?x=1"}, "no address of Loki"},
		{Loki{URL: "http://user:secret@loki"}, "--history-loki-token"},
		{Loki{URL: "http://loki", Tenant: "a b"}, "no name of a tenant"},
		{Loki{URL: "http://loki", Streams: "app=x"}, "selects no streams"},
		{Loki{URL: "http://loki", TokenFile: "/nonexistent"}, "/nonexistent"},
	} {
		if _, err := NewLoki(one.options); err == nil || !strings.Contains(err.Error(), one.word) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", one.options, err)
		}
	}
}
