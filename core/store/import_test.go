package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// memoryLog is a log of a cluster in memory.
type memoryLog struct {
	entries [][]byte
	at      []hook.Instant
	fail    error
}

func (l *memoryLog) Append(_ context.Context, at hook.Instant, entry []byte) error {
	l.entries, l.at = append(l.entries, slices.Clone(entry)), append(l.at, at)
	return l.fail
}

// broker writes the logs of a broker: definitions, and then messages in shard 1.
func brokerLogs(t *testing.T, at hook.Instant, definitions []amqp.Table, messages ...[]byte) *seg.Reader {
	t.Helper()
	fs := crashfs.New(1)
	e, err := seg.New(fs, seg.Options{SegmentSize: 16 << 10, Clock: func() hook.Instant { return at }})
	if err != nil {
		t.Fatal(err)
	}
	var defs [][]byte
	for _, d := range definitions {
		defs = append(defs, amqp.AppendTable(nil, d))
	}
	for shard, entries := range [][][]byte{defs, messages} {
		l, err := e.Open(t.Context(), uint32(shard), nil)
		for _, entry := range entries {
			if err == nil {
				_, err = l.Append(t.Context(), entry, wlog.Bringing)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := seg.NewReader(fs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func defineIn(vhost, op string, more ...amqp.Field) amqp.Table {
	return definition.New(op, append([]amqp.Field{{Key: "vhost", Value: vhost}}, more...)...)
}

func queueIn(vhost, name string, id int64) amqp.Table {
	return defineIn(vhost, "queue.declare", field("name", name), field("id", id), field("auto-delete", false), field("arguments", amqp.Table{}))
}

// settle is an operation of a queue.
func settleOf(queue byte, shard byte) []byte {
	return []byte{2, shard, queue, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0}
}

// runImport imports into logs in memory.
func runImport(t *testing.T, i *Import) (logs map[uint32]*memoryLog, done Imported, err error) {
	t.Helper()
	logs = map[uint32]*memoryLog{}
	i.To = func(shard uint32) (ImportLog, error) {
		logs[shard] = &memoryLog{}
		return logs[shard], nil
	}
	done, err = i.Run(t.Context())
	return logs, done, err
}

// described returns what the entries of a log say.
func (l *memoryLog) described(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for n, entry := range l.entries {
		if err := Describe(&b, wlog.Index(n+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// What is in force is imported, what was deleted is not: vhosts go to the shards in turn, their queues with them.
func TestImport(t *testing.T) {
	const at = hook.Instant(1_700_000_000_000_000_000)
	rewritten := amqp.AppendTable(amqp.AppendTable(nil, defineIn("b", "vhost")), queueIn("b", "again", 7<<8|1))
	rewrite := part{of: scope{scopeVHost, "b"}, first: true, last: true, definitions: rewritten}
	from := brokerLogs(t, at, []amqp.Table{
		defineIn("b", "vhost"), queueIn("b", "before", 6<<8|1),
		defineIn("/", "vhost", field("description", "first"), field("tags", amqp.Array{"x"}), field("default-queue-type", ""), field("tracing", false)),
		queueIn("/", "kept", 2<<8|1), queueIn("/", "gone", 3<<8|1), defineIn("/", "queue.delete", field("name", "gone")),
		defineIn("old", "vhost"), queueIn("old", "q", 4<<8|1), defineIn("old", "vhost.delete"),
		rewrite.definition(), numbersDefinition("", 9), defineGlobalSet("g", []byte("1")),
	}, settleOf(2, 1), slices.Concat(settleOf(3, 1), settleOf(4, 1), settleOf(7, 1)), settleOf(6, 1))
	logs, done, err := runImport(t, &Import{From: from, Shards: 2, Modules: []Module{{Name: "m", Bytes: []byte("module")}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Imported{VHosts: 2, Queues: 2, Modules: 1, Entries: 3, Bytes: 105}); done != want {
		t.Errorf("got %+v, want %+v", done, want)
	}
	fold := newRegistryFold()
	for n, entry := range logs[0].entries {
		if err := fold.entry(0, wlog.Index(n+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	s := &fold.state
	if p := s.placements["/"]; fold.err() != nil || len(s.placements) != 2 || p.Shard != 1 || p.Number != 1 || p.Metadata.Description != "first" || s.given != 2 {
		t.Errorf("the registry has %+v, %v", s.placements, fold.err())
	}
	if m := s.modules["m"]; m == nil || string(m.Bytes) != "module" || m.Revision == 0 {
		t.Errorf("module %+v", m)
	}
	if string(fold.globals["g"]) != "1" {
		t.Errorf("global parameters %s", fold.globals)
	}
	for shard, want := range map[uint32]struct{ queues, numbers []string }{
		1: {[]string{`name="kept" id=513:`}, []string{"queue 513: settle 9"}},
		2: {[]string{`name="again" id=1794:`}, []string{"queue 1794: settle 9"}},
	} {
		got := logs[shard].described(t)
		for _, text := range slices.Concat(want.queues, want.numbers, []string{fmt.Sprintf("placement=%d", shard), "numbers", "last=9"}) {
			if !strings.Contains(got, text) {
				t.Errorf("shard %d has no %q:\n%s", shard, text, got)
			}
		}
		if n := strings.Count(got, "settle"); n != 1 || strings.Contains(got, "before") || strings.Contains(got, "old") {
			t.Errorf("shard %d has\n%s", shard, got)
		}
		for _, when := range logs[shard].at {
			if when != at {
				t.Errorf("shard %d: an entry of %v", shard, when)
			}
		}
	}
}

// A broker of today's format is imported as one of the format before: with more vhosts than shards, two queues of two shards that have the
// same number, and a vhost that was deleted, added again, and not made yet when the broker ended.
func TestImportOfTodaysFormat(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk, func(o *Options) { o.Shards = 2 })
	_, err := k.SetGlobalParameter("g", []byte("1"))
	must(t, err)
	for _, name := range []string{"b", "c", "d", "gone"} {
		_, err := k.AddVHost(name, vhost.Metadata{Description: "of " + name})
		must(t, err)
		v := k.in(name)
		v.put(v.declare("q"), "in "+name, "2")
		v.take(v.declare("empty"))
	}
	_, err = k.DeleteVHost("gone")
	must(t, err)
	must(t, k.Registry().write(k.Registry().plan(), definePlacement(&Placement{VHost: "unmade", Shard: 1, Number: 99})))
	k.Registry().changing.Unlock()
	disk = disk.Kill()
	k.end()
	from, err := seg.NewReader(disk)
	must(t, err)
	// One broker of one shard is what the cluster's logs are read as.
	into := crashfs.New(2)
	e, err := seg.New(into, seg.Options{Version: aloneFormat})
	must(t, err)
	c := &conversion{progress: &progress{clock: k.vhostConfig.Clock, log: slog.New(slog.DiscardHandler)}}
	i := &Import{From: from, Shards: 1, To: func(shard uint32) (ImportLog, error) {
		log, err := e.Open(t.Context(), shard, func(wlog.Index, []byte) error { return nil })
		return convertedLog{log, shard, c}, err
	}}
	done, err := i.Run(t.Context())
	must(t, errors.Join(err, e.Close(), from.Close()))
	if done.VHosts != 5 || done.Queues != 6 {
		t.Errorf("imported %+v", done)
	}
	k = open(t, into)
	if got := k.names(); got != "/ b c d unmade" {
		t.Errorf("vhosts %s", got)
	}
	for _, name := range []string{"b", "c", "d"} {
		v := k.in(name)
		v.wantMessages("q", "in "+name, "2")
		v.wantMessages("empty")
		if got := v.v.Metadata().Description; got != "of "+name {
			t.Errorf("vhost %s is %q", name, got)
		}
	}
	seen := map[uint64]bool{}
	for _, q := range k.shard(1).queues() {
		id := q.Config().Storage.ID
		if seen[id] {
			t.Errorf("two queues have the number %d", id)
		}
		seen[id] = true
	}
	if id := k.in("b").declare("new").Config().Storage.ID; seen[id] {
		t.Errorf("a new queue has the number %d of another", id)
	}
	k.close()
}

// What cannot be imported whole is refused, by name.
func TestImportRefuses(t *testing.T) {
	one := []amqp.Table{defineIn("/", "vhost"), queueIn("/", "q", 2<<8|1)}
	for _, tc := range []struct {
		name   string
		i      Import
		defs   []amqp.Table
		ops    []byte
		fail   error
		want   string
		shards uint32
	}{
		{name: "nothing", want: "there are no virtual hosts and no users"},
		{name: "no shards", defs: one, shards: 300, want: "300 shards: a cluster has 1 to 255"},
		{name: "an unknown definition", defs: []amqp.Table{defineIn("/", "vhost"), defineIn("/", "marvel")}, want: `vhost '/': definition "marvel": is unknown`},
		{name: "an unknown one of no vhost", defs: append(one, definition.New("marvel")), want: `definition "marvel": is unknown`},
		{name: "a queue of no vhost", defs: []amqp.Table{queueIn("x", "q", 2<<8|1)}, want: "vhost 'x': its definitions do not begin with it"},
		{name: "one number twice", defs: append(one, defineIn("b", "vhost"), queueIn("b", "p", 2<<8|1)), want: "number 513 is that of"},
		{name: "operations that no queue wrote", defs: one, ops: []byte{77, 1, 2, 0, 0, 0, 0, 0, 0}, want: "kind 77"},
		{name: "half an operation", defs: one, ops: settleOf(2, 1)[:15], want: "malformed queue operations"},
		{name: "a module without a name", defs: one, i: Import{Modules: []Module{{Bytes: []byte("x")}}}, want: `module "": a name is UTF-8`},
		{name: "a message too large", defs: one, ops: settleOf(2, 1), fail: wlog.ErrTooLarge, want: "queue 'q' in vhost '/': entry too large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := tc.i
			i.From, i.Shards = brokerLogs(t, 1, tc.defs, slices.DeleteFunc([][]byte{tc.ops}, func(b []byte) bool { return b == nil })...), 3
			if tc.shards > 0 {
				i.Shards = tc.shards
			}
			n := 0
			i.To = func(uint32) (ImportLog, error) {
				return failing(func() error {
					if n++; n > 2 { // the registry's, and the vhost's definitions
						return tc.fail
					}
					return nil
				}), nil
			}
			_, err := i.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	i := Import{From: brokerLogs(t, 1, one), Shards: 1, To: func(uint32) (ImportLog, error) { return nil, wlog.ErrFull }}
	if _, err := i.Run(t.Context()); !errors.Is(err, wlog.ErrFull) {
		t.Errorf("a full disk: %v", err)
	}
}

// failing is a log whose appends return what it does.
type failing func() error

func (f failing) Append(context.Context, hook.Instant, []byte) error { return f() }
