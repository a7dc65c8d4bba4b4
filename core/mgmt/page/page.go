// Package page is the page for people on the management port: files for a browser, joined
// as they are written, and their HTTP headers. The page gets its data from the HTTP API,
// and changes the broker through it. This package does not know the broker.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed files
var files embed.FS

// Prefix is where the files are; the page itself is at "/".
const Prefix = "/page/"

// policy is the page's content security policy: everything comes from this server, and no string becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are the content types of the files, by the ends of their names.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// file is one file, compressed once.
type file struct {
	typ   string
	etag  string
	plain []byte
	zip   []byte
}

// Page serves the files. Any goroutine may use it.
type Page struct {
	files func() map[string]*file // by path; made at the first call
}

// New returns the page.
func New() *Page { return &Page{sync.OnceValue(build)} }

// build joins and compresses the files.
func build() map[string]*file {
	all, modules := map[string]*file{}, map[string][]byte{}
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		plain, short := bare(name, plain), strings.TrimPrefix(name, "files/")
		if path.Ext(name) == ".js" {
			modules[short] = plain
		} else {
			all[Prefix+short] = newFile(name, plain)
		}
		return nil
	})
	if err != nil {
		panic(err) // they are part of the program
	}
	joined, err := join(modules, entry)
	if err != nil {
		panic("page: " + err.Error()) // a test finds it
	}
	all[Prefix+entry] = newFile(entry, joined)
	all["/"] = all[Prefix+"index.html"]
	return all
}

// entry is the module that the page begins with.
const entry = "app.js"

// Comments are for readers of the repository. They are a sixth of the size that browsers would fetch.
var (
	ownLines = regexp.MustCompile(`(?m)^[ \t]*(?://.*|/\*(?s:.*?)\*/[ \t]*)$`) // comments that have their lines to themselves
	typeCast = regexp.MustCompile(`/\*\* @[^*\n]*\*/ ?`)                       // of the expression behind it
	indents  = regexp.MustCompile(`(?m)^[ \t]+|[ \t]+$`)
)

// bare returns a module or a style sheet without comments and indentation. Lines stay, so
// that errors lead to them: the name of each module stands before it. No string has more
// than one line; a test looks after it.
func bare(name string, text []byte) []byte {
	switch path.Ext(name) {
	case ".js":
		text = typeCast.ReplaceAll(text, nil)
	case ".css":
	default:
		return text
	}
	text = ownLines.ReplaceAllFunc(text, func(comment []byte) []byte { return bytes.Repeat([]byte("\n"), bytes.Count(comment, []byte("\n"))) })
	return indents.ReplaceAll(text, nil)
}

func newFile(name string, plain []byte) *file {
	var b bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level exists
	_, _ = zip.Write(plain)                                 // memory takes all
	_ = zip.Close()
	sum := sha256.Sum256(plain)
	return &file{types[path.Ext(name)], `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, plain, b.Bytes()}
}

// Has reports whether there is a file at an escaped path.
func (p *Page) Has(escaped string) bool { return p.files()[escaped] != nil }

// ServeHTTP answers a request for a file that there is.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, h := p.files()[r.URL.EscapedPath()], w.Header()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	default:
		h.Set("Allow", "HEAD, GET, OPTIONS")
		if r.Method != http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return
	}
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	h.Set("Vary", "Accept-Encoding")
	if matches(r.Header["If-None-Match"], f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.typ)
	body := f.plain
	if takesGzip(r.Header["Accept-Encoding"]) {
		h.Set("Content-Encoding", "gzip")
		body = f.zip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // if the client is gone, the server notices
	}
}

// matches reports whether lists of tags have this one, or stand for any [RFC 9110 13.1.2].
// Proxies that compress make a tag weak.
func matches(lists []string, etag string) bool {
	for _, list := range lists {
		for tag := range strings.SplitSeq(list, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}

// takesGzip reports whether the client takes gzip: by name or, if it is not named, as one of any [RFC 9110 12.5.3].
func takesGzip(lists []string) bool {
	takes := false
	for _, list := range lists {
		for coding := range strings.SplitSeq(list, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			if name != "gzip" && name != "x-gzip" && name != "*" {
				continue
			}
			takes = !isZero(weight)
			if name != "*" {
				return takes
			}
		}
	}
	return takes
}

// isZero reports whether a weight such as "q=0.0" refuses.
func isZero(weight string) bool {
	name, value, _ := strings.Cut(strings.TrimSpace(weight), "=")
	if !strings.EqualFold(strings.TrimSpace(name), "q") {
		return false
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	return err == nil && q <= 0
}

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
