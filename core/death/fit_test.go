package death

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// long returns the n-th name of the maximum length.
func long(n int) string { return fmt.Sprintf("%03d", n) + strings.Repeat("q", 252) }

// wander makes a message die in several queues with long names.
func wander(t *testing.T, r *Recorder, headers table, queues int) []byte {
	t.Helper()
	m := properties(headers, "")
	for n := range queues {
		m = record(t, r, died(long(n), hook.ReasonRejected, long(n), second, long(n)), m, n > 0)
	}
	return m
}

func deathsOf(t *testing.T, props []byte) (queues []string) {
	t.Helper()
	v, _ := headersOf(t, props).Lookup("x-death")
	entries, _ := v.(array)
	for _, e := range entries {
		q, _ := e.(table).Lookup("queue")
		queues = append(queues, q.(string)[:3])
	}
	return queues
}

// x-death used to grow with each queue that a message passed, until clients refused it.
func TestAHistoryIsBounded(t *testing.T) {
	var r Recorder
	m := wander(t, &r, nil, 300)
	if len(m) > maxHistory+4<<10 {
		t.Errorf("%d bytes", len(m))
	}
	got := deathsOf(t, m)
	if len(got) < 30 || got[0] != "299" || got[len(got)-1] != strconv.Itoa(300-len(got)) {
		t.Errorf("%d deaths, of %v", len(got), got)
	}
	m = record(t, &r, died(long(290), hook.ReasonRejected, "", second), m, true)
	v, _ := headersOf(t, m).Lookup("x-death")
	newest, _ := v.(array)[0].(table)
	if count, _ := newest.Lookup("count"); count != int64(2) {
		t.Errorf("what is remembered is not counted: %v", count)
	}
	if first, _ := headersOf(t, m).Lookup("x-first-death-queue"); first != long(0) {
		t.Errorf("first died in %v", first)
	}
	record(t, &r, died(long(291), hook.ReasonExpired, "", second), m, true)
	if !r.History().Cycle(long(291)) {
		t.Error("no cycle where it has just been")
	}
}

func TestFit(t *testing.T) {
	own := table{{Key: "own", Value: strings.Repeat("x", 2000)}}
	var r Recorder
	died := wander(t, &r, own, 20)
	died3 := wander(t, &r, own, 3)
	withCount := properties(append(table{}, own[0], amqp.Field{Key: "x-delivery-count", Value: int64(1)}), "")
	for _, tc := range []struct {
		name    string
		props   []byte
		limit   int
		deaths  string
		headers int // remaining headers; 0 = all
	}{
		{"it fits", died, len(died), "", 0},
		{"a byte too large", died3, len(died3) - 1, "002 001", 8},
		{"the oldest go first", died, 8000, "019 018 017 016 015", 8},
		{"not even one", died, 4000, "", 7},
		{"none of it", died, 2100, "", 1},
		{"the count, too", withCount, len(properties(own, "")), "", 1},
		{"the publisher's own", died, 1000, "", 0},
	} {
		got := Fit(tc.props, tc.limit)
		if tc.headers == 0 {
			if !bytes.Equal(got, tc.props) {
				t.Errorf("%s: it was changed", tc.name)
			}
			continue
		}
		h := headersOf(t, got)
		if deaths := strings.Join(deathsOf(t, got), " "); len(got) > tc.limit || deaths != tc.deaths || len(h) != tc.headers {
			t.Errorf("%s: %d bytes of %d, %d headers, deaths %s", tc.name, len(got), tc.limit, len(h), deaths)
		}
		if v, _ := h.Lookup("own"); v != own[0].Value {
			t.Errorf("%s: the publisher's header is gone", tc.name)
		}
		p, err := amqp.ParseProperties(got)
		if err != nil || p.MessageID != "m1" {
			t.Errorf("%s: %+v, %v", tc.name, p, err)
		}
	}
}
