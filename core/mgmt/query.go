package mgmt

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/pattern"
)

// query is the parameters of a request.
type query struct {
	columns     [][]string // paths of member names; nil = all
	sort        []string   // path; nil = in the order of the list
	needs       []string   // first names of the paths in columns and sort; nil = all members
	reverse     bool
	page        int // 0 = the whole list
	size        int
	name        *pattern.Filter // nil = every name
	noStats     bool            // disable_stats
	queueTotals bool            // enable_queue_totals
	unknown     bool            // unknown_rates: rates that are not known are null, not zero
	raw         url.Values
}

const (
	defaultPage = 100
	maxPage     = 500

	maxColumns = 200
)

var errPagination = badRequest("Pagination parameters are invalid")

// parseParameters leaves it to the handler to read the parameters.
func parseParameters(raw string) (q query, err error) {
	if q.raw, err = url.ParseQuery(raw); err != nil {
		return q, badRequest("query: %v", err)
	}
	return q, nil
}

// parseQuery reads the parameters of a list.
func (a *API) parseQuery(raw string) (q query, err error) {
	if q, err = parseParameters(raw); err != nil {
		return q, err
	}
	if q.columns, err = parseColumns(q.raw.Get("columns")); err != nil {
		return q, err
	}
	if s := q.raw.Get("sort"); s != "" {
		q.sort = strings.Split(s, ".")
	}
	for _, path := range q.columns {
		q.needs = append(q.needs, path[0])
	}
	if q.needs != nil && q.sort != nil {
		q.needs = append(q.needs, q.sort[0])
	}
	q.unknown = q.raw.Get("unknown_rates") == "true"
	q.reverse = q.raw.Get("sort_reverse") == "true"
	q.noStats = q.raw.Get("disable_stats") == "true"
	q.queueTotals = q.raw.Get("enable_queue_totals") == "true"
	if !q.raw.Has("page") {
		return q, nil
	}
	return q, q.parsePage(a.turns)
}

// wants reports whether any of the members is needed.
func (q *query) wants(names ...string) bool {
	return q.needs == nil || slices.ContainsFunc(q.needs, func(name string) bool { return slices.Contains(names, name) })
}

// within reports whether o has all members that are needed.
func (q *query) within(o object) bool {
	return q.needs != nil && !slices.ContainsFunc(q.needs, func(name string) bool {
		_, ok := o.Value(name)
		return !ok
	})
}

func parseColumns(s string) (paths [][]string, err error) {
	if s == "" {
		return nil, nil
	}
	columns := strings.Split(s, ",")
	if len(columns) > maxColumns {
		return nil, badRequest("columns: %d of them: at most %d are allowed", len(columns), maxColumns)
	}
	for _, c := range columns {
		paths = append(paths, strings.Split(c, "."))
	}
	return paths, nil
}

func (q *query) parsePage(turns *pattern.Turns) (err error) {
	if q.page, err = strconv.Atoi(q.raw.Get("page")); err != nil {
		return errPagination
	}
	q.size = defaultPage
	asked := "undefined"
	if q.raw.Has("page_size") {
		if q.size, err = strconv.Atoi(q.raw.Get("page_size")); err != nil {
			return errPagination
		}
		asked = strconv.Itoa(q.size)
	}
	if q.page < 1 || q.size < 1 || q.size > maxPage {
		return &failure{
			400, "invalid_pagination_parameters",
			"Invalid pagination parameters: page number " + strconv.Itoa(q.page) + ", page size " + asked,
		}
	}
	q.name, err = nameFilter(turns, q.raw.Get("name"), q.raw.Get("use_regex") == "true")
	return err
}

// nameFilter returns a filter for names that contain a string, or match a regular expression, in upper or lower case; nil for none.
func nameFilter(turns *pattern.Turns, s string, expression bool) (*pattern.Filter, error) {
	switch {
	case s == "":
		return nil, nil
	case expression:
		return expressionFilter(turns.Folded("name", s))
	case len(s) > pattern.MaxExpression:
		return nil, badRequest("name has %d bytes: at most %d are allowed", len(s), pattern.MaxExpression)
	}
	s = strings.ToLower(s)
	return pattern.Plain(func(name string) bool { return strings.Contains(strings.ToLower(name), s) }), nil
}

func expressionFilter(f *pattern.Filter, err error) (*pattern.Filter, error) {
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return f, nil
}

// unmatched returns the answer for names that were not compared.
func unmatched(err error) error {
	if err == nil {
		return nil
	}
	return badRequest("name: %v", err)
}
