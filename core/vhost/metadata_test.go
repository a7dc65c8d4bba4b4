package vhost

import (
	"reflect"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/queue"
)

func TestMetadata(t *testing.T) {
	k := &memoryLog{}
	v, _ := newVHostWith(t, k)
	if got := v.Metadata(); !reflect.DeepEqual(got, Metadata{}) {
		t.Errorf("at first: %+v", got)
	}
	m := Metadata{Description: "für Tests", Tags: []string{"a", "b"}, DefaultQueueType: queue.Quorum, Tracing: true}
	must(t, v.SetMetadata(m))
	restarted := k.restart(t)
	if got := restarted.Metadata(); !reflect.DeepEqual(got, m) {
		t.Errorf("after a restart: %+v", got)
	}
	if !restarted.Tracing() { // a vhost that was said to be traced once had no copies of its messages
		t.Error("after a restart, messages are not traced")
	}
	k.bulky.Store(true)
	must(t, v.setParameter("federation", "up", `{"a":1}`))
	again := k.restart(t)
	if got := again.Metadata(); !reflect.DeepEqual(got, m) || len(again.Parameters().All()) != 1 {
		t.Errorf("after a rewrite: %+v", got)
	}
}

// setParameter is SetParameter without the first result.
func (v *VHost) setParameter(component, name, value string) error {
	_, err := v.Parameters().Set(Parameter{component, name, []byte(value)})
	return err
}

func TestWrongMetadata(t *testing.T) {
	v, _ := newVHost(t)
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		m    Metadata
		text string
	}{
		{Metadata{Description: strings.Repeat(long, 17)}, "description of 4352 bytes: at most 4096 are allowed"},
		{Metadata{Description: "\xff"}, `description "\xff" is not UTF-8`},
		{Metadata{Tags: make([]string, 65)}, "65 tags: at most 64 are allowed"},
		{Metadata{Tags: []string{""}}, `tag "": is not UTF-8 of 1 to 255 bytes`},
		{Metadata{Tags: []string{long}}, `tag "` + long + `": is not UTF-8 of 1 to 255 bytes`},
		{Metadata{DefaultQueueType: "stream"}, "default queue type 'stream' is not offered, only 'classic' and 'quorum'"},
	} {
		want(t, v.SetMetadata(c.m), Precondition, c.text)
	}
	want(t, CheckName(""), Precondition, "vhost name is empty")
	want(t, CheckName(long), Precondition, "vhost name of 256 bytes: at most 255 are allowed")
	want(t, CheckName("\xff"), Precondition, `vhost name "\xff" is not UTF-8`)
	want(t, CheckName("a\x00"), Precondition, `vhost name "a\x00" has NUL in it`)
	must(t, CheckName("/"))
}

// The default type applies to queues that can have it and name none.
func TestDefaultQueueType(t *testing.T) {
	v, _ := newVHost(t)
	must(t, v.SetMetadata(Metadata{DefaultQueueType: queue.Quorum}))
	for _, c := range []struct {
		name string
		d    QueueDeclare
		kind string
	}{
		{"durable", QueueDeclare{Name: "a", Durable: true}, queue.Quorum},
		{"again", QueueDeclare{Name: "a", Durable: true}, queue.Quorum},
		{"again, in words", QueueDeclare{Name: "a", Durable: true, Args: args("x-queue-type", "quorum")}, queue.Quorum},
		{"chosen", QueueDeclare{Name: "b", Durable: true, Args: args("x-queue-type", "classic")}, queue.Classic},
		{"transient", QueueDeclare{Name: "c"}, queue.Classic},
		{"exclusive", QueueDeclare{Name: "d", Durable: true, Exclusive: true, Owner: 1}, queue.Classic},
		{"auto-delete", QueueDeclare{Name: "e", Durable: true, AutoDelete: true}, queue.Classic},
		{"server-named", QueueDeclare{Durable: true}, queue.Classic},
	} {
		d, err := v.DeclareQueue(c.d)
		must(t, err)
		if got := d.Mailbox.Config().Kind; got != c.kind {
			t.Errorf("%s: got %s, want %s", c.name, got, c.kind)
		}
	}
}
