package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestThePageIsServedUnderAStrictPolicy(t *testing.T) {
	access, err := OpenAccess("", nil)
	if err != nil {
		t.Fatal(err)
	}
	server := cleartext(t, handler(NewService(nil, nil, nil), access, nil))
	for path, want := range map[string]string{"/": "<html data-gateway lang", "/page.js": "stackd.v1.", "/page.css": "{"} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %v", path, answer.StatusCode, err)
		}
		if answer.Header.Get("Content-Security-Policy") != pagePolicy || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, answer.Header)
		}
	}
	for path, want := range map[string]int{"/index": http.StatusNotFound, "/../go.mod": http.StatusNotFound, "/dist/": http.StatusNotFound} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
}
