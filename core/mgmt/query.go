package mgmt

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// query is what the parameters of a request ask for.
type query struct {
	columns     [][]string // paths of member names; nil = all
	sort        []string   // path; nil = as it comes
	needs       []string   // members that columns and sort begin with; nil = all
	reverse     bool
	page        int // 0 = everything at once
	size        int
	name        func(string) bool // nil = every name
	noStats     bool              // disable_stats
	queueTotals bool              // enable_queue_totals
	raw         url.Values
}

const (
	defaultPage = 100
	maxPage     = 500

	maxColumns    = 200
	maxExpression = 1024
)

var errPagination = badRequest("Pagination parameters are invalid")

func parseQuery(raw string) (q query, err error) {
	q.raw, err = url.ParseQuery(raw)
	if err != nil {
		return q, badRequest("query: %v", err)
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
	q.reverse = q.raw.Get("sort_reverse") == "true"
	q.noStats = q.raw.Get("disable_stats") == "true"
	q.queueTotals = q.raw.Get("enable_queue_totals") == "true"
	if !q.raw.Has("page") {
		return q, nil
	}
	return q, q.parsePage()
}

// wants reports whether any of the members is needed.
func (q *query) wants(names ...string) bool {
	return q.needs == nil || slices.ContainsFunc(q.needs, func(name string) bool { return slices.Contains(names, name) })
}

// within reports whether everything that is needed is among the members of o.
func (q *query) within(o object) bool {
	return q.needs != nil && !slices.ContainsFunc(q.needs, func(name string) bool {
		_, ok := o.at(name)
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

func (q *query) parsePage() (err error) {
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
	q.name, err = nameFilter(q.raw.Get("name"), q.raw.Get("use_regex") == "true")
	return err
}

// nameFilter lets names pass that contain a string, or match an expression, in upper or lower case.
func nameFilter(s string, expression bool) (func(string) bool, error) {
	switch {
	case s == "":
		return nil, nil
	case len(s) > maxExpression:
		return nil, badRequest("name has %d bytes: at most %d are allowed", len(s), maxExpression)
	case !expression:
		s = strings.ToLower(s)
		return func(name string) bool { return strings.Contains(strings.ToLower(name), s) }, nil
	}
	re, err := regexp.Compile("(?i)" + s)
	if err != nil {
		return nil, errPagination
	}
	return re.MatchString, nil
}
