package mgmt

import (
	"net/http"
	"net/url"
	"strings"
)

// pathInQuery is a path that has another path in its query: path?of=queues/%252F/./contents. Browsers, curl and many proxies resolve the
// segments "." and ".." in a path, also percent-encoded ones, but leave a query as it is. Without pathInQuery, a request to purge the queue
// "." would arrive as one to delete the queue "contents".
const pathInQuery = root + "path"

// atPathOf returns the request for the path that its query names, with the rest of the query.
func atPathOf(r *http.Request) (*http.Request, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	of := strings.TrimPrefix(query.Get("of"), "/")
	if err != nil || of == "" {
		return r, badRequest("of is missing: the path below %s that is meant, with escaped names, as in of=queues/%%252F/./contents", root)
	}
	decoded, err := url.PathUnescape(of)
	if err != nil || strings.ContainsAny(of, "?#") {
		return r, badRequest("of is not a path with escaped names, such as queues/%%252F/./contents")
	}
	query.Del("of")
	u := *r.URL
	u.Path, u.RawPath, u.RawQuery = root+decoded, root+of, query.Encode()
	if u.EscapedPath() != u.RawPath || u.RawPath == pathInQuery { // a character that has to be escaped is not
		return r, badRequest("of is not a path with escaped names, such as queues/%%252F/./contents")
	}
	r = r.WithContext(r.Context())
	r.URL = &u
	return r, nil
}
