package gateway

import (
	"bytes"
	"io/fs"
	"net/http"

	files "stackd.example/page"
)

// Nothing inline, nothing from elsewhere, in no frame: as a daemon serves it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// What tells the page that a gateway serves it.
const pageMark = "<html data-gateway "

// servePage adds the page's files. They hold nothing of any process, so they need no role.
func servePage(calls *http.ServeMux) {
	for _, file := range []struct{ name, path, kind string }{
		{"index.html", "/{$}", "text/html; charset=utf-8"}, {"page.js", "/page.js", "text/javascript; charset=utf-8"},
		{"page.css", "/page.css", "text/css; charset=utf-8"},
	} {
		content, err := fs.ReadFile(files.Dist, "dist/"+file.name)
		if err != nil {
			panic(err)
		}
		content = bytes.Replace(content, []byte("<html "), []byte(pageMark), 1)
		calls.HandleFunc("GET "+file.path, func(writer http.ResponseWriter, _ *http.Request) {
			for name, value := range map[string]string{"Content-Type": file.kind, "Content-Security-Policy": pagePolicy,
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
				"Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store"} {
				writer.Header().Set(name, value)
			}
			// A reader that has left is not told.
			_, _ = writer.Write(content)
		})
	}
}
