package mgmt

import (
	"encoding/json"
	"fmt"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/report"
)

// While a cluster is upgraded, some of its nodes do not know rows. They ask for parts in JSON and answer in JSON, and ignore [rowsHeader].

// sendOlder answers with a part of a list in JSON. Rows that stand for many are {"n": 3, "key": …, "natural": …}.
func (l *listing[R, T]) sendOlder(c *request, next func() (*report.Row, error)) {
	if q := &c.query; q.columns != nil { // they get what decides the order, too
		q.columns = append(q.columns, []string{"vhost"}, []string{"queue", "vhost"})
		if q.sort != nil {
			q.columns = append(q.columns, q.sort)
		}
	}
	c.streamObjects(func(yield func(object) bool) {
		for r, _ := next(); r != nil; r, _ = next() {
			o := object{{"n", r.N}, {"key", r.Key.Value()}, {"natural", r.Natural.Value()}}
			if r.Value != nil {
				o = l.render(r)
			}
			if !yield(o) {
				return
			}
		}
	})
}

// older is what is known of a part of a list in JSON.
type older struct {
	sort    []string // the path of what it is sorted by; nil = it is in its natural order
	natural bool     // that is by vhost
	counted bool     // rows stand for many
}

// readOlder begins to read a part of a list in JSON.
func (p *part) readOlder(of *older) (next func() (*report.Row, error), err error) {
	if p.rest == nil { // a part that is unusable is left out, as long as that can be known
		if _, err = jsonobj.ParseItems(p.body); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	in := json.NewDecoder(p.reader())
	if t, err := in.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("list: begins with %v: %w", t, err)
	}
	return func() (*report.Row, error) {
		if !in.More() {
			_, err := in.Token() // the end, or why there is none
			return nil, err
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, err
		}
		o, err := jsonobj.ParseObject(raw)
		return of.row(o), err
	}, nil
}

func (l *older) row(o object) *report.Row {
	if l.counted {
		return &report.Row{
			N:    int(intOf(valueOf(o, "n"))),
			Keys: report.Keys{Key: report.KeyOf(valueOf(o, "key")), Natural: report.KeyOf(valueOf(o, "natural"))},
		}
	}
	r := &report.Row{Value: o}
	if l.sort != nil {
		key, _ := o.Find(l.sort)
		r.Key = report.KeyOf(key)
	}
	if l.natural {
		of, ok := o.Find([]string{"vhost"})
		if !ok {
			of, _ = o.Find([]string{"queue", "vhost"})
		}
		r.Natural = report.KeyOf(of)
	}
	return r
}
