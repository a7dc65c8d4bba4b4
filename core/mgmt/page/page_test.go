package page

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shared is the page for all tests: it is made once, and compressing it takes a second under the race detector.
var shared = New()

func get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	shared.ServeHTTP(w, r)
	return w.Result()
}

func TestThePageIsAtTheRootAndCompressed(t *testing.T) {
	answer := get(t, "/", "Accept-Encoding", "gzip")
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("got %d, %v", answer.StatusCode, answer.Header)
	}
	zip, err := gzip.NewReader(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(zip)
	if err != nil || !strings.Contains(string(body), `src="/page/app.js"`) {
		t.Fatalf("got %q, %v", body, err)
	}
}

func TestWhatABrowserHasIsNotSentAgain(t *testing.T) {
	tag := get(t, "/page/app.js").Header.Get("ETag")
	if answer := get(t, "/page/app.js", "If-None-Match", tag); answer.StatusCode != http.StatusNotModified || answer.ContentLength > 0 {
		t.Fatalf("got %d", answer.StatusCode)
	}
}

func TestEachFileHasAType(t *testing.T) {
	for path, f := range shared.files() {
		if f.typ == "" {
			t.Errorf("%s has no Content-Type", path)
		}
	}
}

func TestWhatABrowserSaysItHas(t *testing.T) {
	tag := get(t, "/page/app.js").Header.Get("ETag")
	for header, want := range map[string]int{
		tag: 304, "W/" + tag: 304, `"a", ` + tag + `,"b"`: 304, "*": 304, " " + tag + " ": 304,
		`"a"`: 200, strings.Trim(tag, `"`): 200, "": 200, ",,": 200, tag[:5] + `"`: 200,
	} {
		if got := get(t, "/page/app.js", "If-None-Match", header).StatusCode; got != want {
			t.Errorf("%s: got %d, want %d", header, got, want)
		}
	}
}

func TestWhoTakesGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"gzip": true, "gzip, br": true, "br;q=1.0, GZIP;q=0.5": true, "*": true, "x-gzip": true, "gzip;q=0, *": false, "*;q=0, gzip": true,
		"": false, "identity": false, "gzip;q=0": false, "gzip; q=0.000": false, "br, *;q=0": false, "xgzip": false, "gzip;q=x": true,
	} {
		answer := get(t, "/page/app.js", "Accept-Encoding", header)
		if got := answer.Header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("%q: compressed %v", header, got)
		}
		if answer.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: caches are not told", header)
		}
	}
}

func TestMethodsOfThePage(t *testing.T) {
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "OPTIONS": 200, "POST": 405, "PUT": 405, "DELETE": 405} {
		w := httptest.NewRecorder()
		shared.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		reads := method == "GET" || method == "HEAD"
		if w.Code != want || (w.Header().Get("Allow") != "") == reads || (w.Body.Len() > 0) != (method == "GET") || (w.Header().Get("Content-Length") != "") != reads {
			t.Errorf("%s: got %d %v, %d bytes", method, w.Code, w.Header(), w.Body.Len())
		}
	}
}

// banned are expressions that would make markup, code or styles from strings, or lead a browser elsewhere. The names of queues and headers
// are hostile.
var banned = []*regexp.Regexp{
	regexp.MustCompile(`\b(?:inner|outer)HTML\b`), regexp.MustCompile(`\binsertAdjacentHTML\b`), regexp.MustCompile(`\bdocument\s*\.\s*write(?:ln)?\b`),
	regexp.MustCompile(`\bsetHTML(?:Unsafe)?\b`), regexp.MustCompile(`\bparseFromString\b`), regexp.MustCompile(`\bcreateContextualFragment\b`), regexp.MustCompile(`\bsrcdoc\b`),
	regexp.MustCompile(`\beval\s*\(`), regexp.MustCompile(`\bnew\s+Function\b`), regexp.MustCompile(`\bset(?:Timeout|Interval)\s*\(\s*['"` + "`" + `]`),
	regexp.MustCompile(`(?i)javascript:`), regexp.MustCompile(`(?i)['"` + "`" + `(=]\s*(?:https?:)?//[a-z0-9]`), regexp.MustCompile(`@import\b`), regexp.MustCompile(`\burl\(\s*['"]?(?:[a-z]+:)?//`),
	regexp.MustCompile(`\bsetAttribute\(\s*['"](?:on\w*|style)['"]`), regexp.MustCompile(`\bsessionStorage\b|\bindexedDB\b|\bdocument\.cookie\b`),
}

// inMarkup is banned in HTML and SVG.
var inMarkup = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\son[a-z]+\s*=`), regexp.MustCompile(`(?i)\sstyle\s*=`), regexp.MustCompile(`(?i)<style\b`), regexp.MustCompile(`(?i)<script\b[^>]*>[^<]`),
}

// titled is an element with a title, which neither the keyboard nor a finger reaches: explained, in blocks.js, is for them, too.
var titled = regexp.MustCompile(`\bh\(\s*'[a-z]+',\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*?\btitle\s*[:,}]|setAttribute\('title'`)

func TestNothingIsSaidByTitlesOnly(t *testing.T) {
	for name, plain := range written(t) {
		if at := titled.Find(plain); at != nil {
			t.Errorf("%s: %s", name, at)
		}
	}
}

// namespace is no address that is fetched.
const namespace = "http://www.w3.org/2000/svg"

func TestNothingIsMadeOfStrings(t *testing.T) {
	for name, plain := range written(t) {
		text := strings.ReplaceAll(string(plain), namespace, "")
		rules := banned
		if !strings.HasSuffix(name, ".js") && !strings.HasSuffix(name, ".css") {
			rules = slices.Concat(banned, inMarkup)
		}
		for _, rule := range rules {
			if found := rule.FindString(text); found != "" {
				t.Errorf("%s has %q, which %v bans", name, found, rule)
			}
		}
		if strings.Contains(text, "localStorage") && name != "theme.js" {
			t.Errorf("%s keeps something in the browser; only the theme may be", name)
		}
	}
}

// written returns the files as they are written, but for comments.
func written(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := files.ReadFile(name)
		all[strings.TrimPrefix(name, "files/")] = bare(name, plain)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The bans would be worth nothing if they found nothing.
func TestBans(t *testing.T) {
	for _, bad := range []string{
		"e.innerHTML = x", "e.outerHTML", "e.insertAdjacentHTML('beforeend', x)", "document.write(x)", "document . writeln(x)", "e.setHTMLUnsafe(x)",
		"new DOMParser().parseFromString(x)", "eval(x)", "new Function(x)", "setTimeout('x()')", "a.href = 'javascript:x'", "fetch('https://x.example')",
		"import('//x.example/y.js')", "<img src=//x.example/y>", "@import 'x'", "background: url(//x.example/y)", "e.setAttribute('onclick', x)", "e.setAttribute('style', x)",
		`<a onclick="x">`, `<p style="x">`, "<style>", "<script>x</script>", "sessionStorage.x = 1",
	} {
		if !slices.ContainsFunc(slices.Concat(banned, inMarkup), func(r *regexp.Regexp) bool { return r.MatchString(bad) }) {
			t.Errorf("%s is not banned", bad)
		}
	}
}

// The files are served as they are written, without comments and indentation: a string of several lines would lose a part of itself.
func TestNoStringHasTwoLines(t *testing.T) {
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".js" {
			return err
		}
		text, err := files.ReadFile(name)
		commented := false
		for i, line := range strings.Split(string(text), "\n") {
			if commented = commented && !strings.Contains(line, "*/"); commented {
				continue
			}
			if at := strings.TrimSpace(line); strings.HasPrefix(at, "/*") || strings.HasPrefix(at, "*") || strings.HasPrefix(at, "//") {
				commented = strings.HasPrefix(at, "/*") && !strings.Contains(at, "*/")
				continue
			}
			if strings.Count(line, "`")%2 != 0 || strings.HasSuffix(line, "\\") {
				t.Errorf("%s:%d: a string has more than one line", name, i+1)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBare(t *testing.T) {
	const written = "// What it is.\n\n/**\n * @param {string} a\n */\nexport function f(a) {\n  /** @type {T} */\n  let b = /** @type {U} */ (a); // stays\n  /* gone */\n  return 'http://x/*' + b;\n}\n"
	const want = "\n\n\n\n\nexport function f(a) {\n\nlet b = (a); // stays\n\nreturn 'http://x/*' + b;\n}\n"
	if got := string(bare("a.js", []byte(written))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(bare("a.html", []byte("  <!-- a -->"))); got != "  <!-- a -->" {
		t.Errorf("got %q", got)
	}
}

// most is how many bytes the page may have in all, compressed: all views come with the first one.
const most = 100_000

func TestThePageIsSmall(t *testing.T) {
	sum := 0
	for name, f := range shared.files() {
		if name != "/" {
			sum += len(f.zip)
		}
	}
	t.Logf("%d bytes, compressed", sum)
	if sum > most {
		t.Errorf("the page has %d bytes, compressed: at most %d are allowed", sum, most)
	}
}

// A brace too many or too few ends no rule where it looks as if it did, and browsers say nothing.
func TestBracesOfStylesBalance(t *testing.T) {
	b, err := fs.ReadFile(files, "files/style.css")
	if err != nil {
		t.Fatal(err)
	}
	depth := 0
	for i, c := range string(b) {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth < 0 || depth > 3 {
			t.Fatalf("line %d: %d braces are open", 1+strings.Count(string(b[:i]), "\n"), depth)
		}
	}
	if depth != 0 {
		t.Errorf("%d braces are not closed", depth)
	}
}
