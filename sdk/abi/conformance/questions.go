package conformance

import (
	"strings"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// question is a message about which the guest is called. Its priority tells the guest what to do; README.md has the list.
type question struct {
	priority uint8
	name     string
	message  hook.Message
	content  hooktest.Content
}

// entering are the questions of on_enqueue.
func entering() []question {
	qs := []question{
		{priority: 0, name: "no opinion", message: hook.Message{Expiration: hook.LimitOf(101)}},
		{priority: 1, name: "keep for a second"},
		{priority: 2, name: "keep for ever"},
		{priority: 3, name: "expire"},
		{priority: 4, name: "drop"},
		{priority: 5, name: "ask again after five seconds"},
		{priority: 6, name: "dead-letter"},
		{priority: 7, name: "dead-letter with its own key"},
		{priority: 12, name: "number of the configuration"},
		{priority: 13, name: "text of the configuration"},
		{priority: 14, name: "number of the queue"},
		{priority: 15, name: "text of the queue"},
		{priority: 16, name: "log"},
		{priority: 17, name: "count", message: hook.Message{Size: 1234}},
		{priority: 17, name: "count", message: hook.Message{Size: 4321}},
		{priority: 20, name: "ask at the head"},
		{priority: 21, name: "hold"},
		{priority: 22, name: "hold with no opinion"},
		{priority: 23, name: "hold taken back"},
	}
	return append(append(qs, records()...), contents()...)
}

// records are questions about the content of a record.
func records() []question {
	record := hook.Message{Expiration: hook.LimitOf(101), Deadline: start.AddMillis(303), State: 404, Size: 505, Deliveries: 606}
	flags := hook.Message{Enqueued: start.AddMillis(-70), Redelivered: true, Persistent: true}
	return []question{
		{priority: 18, name: "record", message: record},
		{priority: 19, name: "rest of the record", message: flags, content: hooktest.Content{Deaths: 8}},
		{priority: 19, name: "rest of the record of another", message: hook.Message{Persistent: true}},
	}
}

// contents are questions about the content of a message.
func contents() []question {
	number := func(v any) hooktest.Content {
		return hooktest.Content{Headers: map[string]any{"number": v}}
	}
	text := func(v any) hooktest.Content {
		return hooktest.Content{Headers: map[string]any{"text": v}}
	}
	parts := map[hook.Part][]byte{
		hook.PartMessageID: []byte("m-1"), hook.PartType: []byte("order"), hook.PartAppID: []byte("shop"), hook.PartUserID: []byte("guest"),
	}
	body := func(s string) hooktest.Content {
		return hooktest.Content{Parts: map[hook.Part][]byte{hook.PartBody: []byte(s)}}
	}
	return []question{
		{priority: 8, name: "number of a header", content: number(int64(1) << 40)},
		{priority: 8, name: "number of a header that is text", content: number("-12")},
		{priority: 8, name: "number of a header that is none", content: number("soon")},
		{priority: 8, name: "number of no header"},
		{priority: 9, name: "text of a header", content: text("grün")},
		{priority: 9, name: "text of an empty header", content: text("")},
		{priority: 9, name: "text of a long header", content: text(strings.Repeat("0123456789", 30))},
		{priority: 9, name: "text of a header that is a number", content: text(int64(5))},
		{priority: 9, name: "text of no header"},
		{priority: 10, name: "properties", content: hooktest.Content{Exchange: "amq.topic", RoutingKey: "a.b", Parts: parts}},
		{priority: 10, name: "no properties"},
		{priority: 11, name: "body", content: body("0123456789abcdef")},
		{priority: 11, name: "end of a body", content: body("0123456")},
		{priority: 11, name: "beyond a body", content: body("012")},
	}
}

// due are the questions of on_deadline.
func due() []question {
	qs := []question{
		{priority: 0, name: "expire"},
		{priority: 1, name: "keep for a second"},
		{priority: 2, name: "dead-letter"},
		{priority: 3, name: "ask again after five seconds"},
		{priority: 4, name: "drop"},
		{priority: 5, name: "no opinion"},
	}
	for i := range qs {
		qs[i].message = hook.Message{Enqueued: start.AddMillis(-1_000), Deadline: start, State: 9}
	}
	return qs
}

// atHead are the questions of on_head, and comingBack those of on_requeue.
func atHead() []question {
	return inForce("keep for ten milliseconds", "no opinion", "hold for ten milliseconds")
}

func comingBack() []question {
	return inForce("keep for a second longer", "no opinion", "hold until the deadline")
}

func inForce(names ...string) []question {
	var qs []question
	for i, name := range names {
		m := hook.Message{Enqueued: start, Deadline: start.AddMillis(2_000), State: 9, Deliveries: 5}
		qs = append(qs, question{priority: uint8(i), name: name, message: m})
	}
	return qs
}
