package page

import "net/http"

// starting is shown while the broker starts. Browsers ask again by themselves, until the page is there.
const starting = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="1">
<title>Starting · Curfew</title>
</head>
<body>
<h1>Curfew is starting</h1>
<p>The broker reads its data directory. This page goes on by itself.</p>
</body>
</html>
`

// Starting answers in place of a [Page] while its broker starts: 503, with a page that looks again every second.
func Starting(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "HEAD, GET")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Type", types[".html"])
	h.Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(starting)) // if the client is gone, the server notices
}
