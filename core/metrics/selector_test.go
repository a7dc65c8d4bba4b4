package metrics

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/queue"
)

// pretend shows queues to the selector, with given numbers of messages and of messages that went through, and returns the names of
// the queues that have series from then on.
func (p *seriesSelector) pretend(queues []*queue.Mailbox, messages, passed []int) (shown []string) {
	for i, s := range queues {
		p.see(s, &queue.Stats{Ready: messages[i], Counters: queue.Counters{Published: uint64(passed[i])}})
	}
	p.choose()
	for s := range p.shown {
		shown = append(shown, s.Config().Name)
	}
	slices.Sort(shown)
	return shown
}

func TestTheBusiestAreShownAndStay(t *testing.T) {
	r := newRig(t, 2)
	v := r.vhost("v")
	var queues []*queue.Mailbox
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		queues = append(queues, r.declare(v, name))
	}
	p := seriesSelector{limit: 2}
	for _, step := range []struct {
		name             string
		messages, passed []int
		want             string
	}{
		{"ties go by name", []int{0, 0, 0, 0, 0}, []int{0, 0, 0, 0, 0}, "[a b]"},
		{"messages", []int{0, 0, 0, 100, 90}, []int{0, 0, 0, 0, 0}, "[d e]"},
		{"a little more is not enough", []int{0, 0, 120, 100, 90}, []int{0, 0, 0, 0, 0}, "[d e]"},
		{"several times as much is", []int{0, 0, 1000, 100, 90}, []int{0, 0, 0, 0, 0}, "[c d]"},
		{"what goes through counts, too", []int{0, 0, 1000, 100, 90}, []int{5000, 0, 0, 0, 0}, "[a c]"},
		{"while it does", []int{0, 0, 1000, 2000, 90}, []int{5000, 0, 0, 0, 0}, "[c d]"},
		{"and those that are idle leave in the end", []int{0, 2, 0, 0, 0}, []int{5000, 0, 0, 0, 0}, "[b c]"},
	} {
		if got := fmt.Sprint(p.pretend(queues, step.messages, step.passed)); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
	first := seriesSelector{limit: 2}
	if got := fmt.Sprint(first.pretend(queues, []int{1, 1, 1, 0, 0}, []int{1, 1, 1, 40, 40})); got != "[d e]" {
		t.Errorf("the first look shows %s, not the queues that most went through", got)
	}
	if p.pretend(queues[:1], []int{0}, []int{5000}); len(p.known) != 1 {
		t.Errorf("%d queues are remembered, of which one is left", len(p.known))
	}
}

func TestLabelsOfAQueueStayTheSame(t *testing.T) {
	r := newRig(t, 2)
	s := r.declare(r.vhost("v"), "q")
	p := seriesSelector{limit: 2}
	p.showAll([]*queue.Mailbox{s})
	first := p.labels(s)
	p.showAll([]*queue.Mailbox{s})
	p.pretend([]*queue.Mailbox{s}, []int{0}, []int{0})
	if p.labels(s) != first {
		t.Error("the labels were made again")
	}
}

func TestWhatIsPublishedToTheOthers(t *testing.T) {
	r := newRig(t, 1)
	ch, done := r.dial("/")
	declare(t, ch, "busy", nil)
	publish(t, ch, "busy", 16)
	r.collect()
	declare(t, ch, "new", nil)
	for _, want := range []float64{1, 2, 3} {
		publish(t, ch, "new", 1)
		c := r.collect()
		if n, _ := value(c, `rabbitmq_queue_messages_published_total{vhost="",queue=""}`); n != want {
			t.Errorf("%v messages, want %v", n, want)
		}
	}
	_, err := ch.QueueDelete("new", false, false, false)
	must(t, err)
	declare(t, ch, "another", nil)
	want(t, r.collect(), `rabbitmq_queue_messages_published_total{vhost="",queue=""}`, 3)
	done()
}

// sums adds up the series of each gauge of queues.
func sums(c *Collection) map[string]float64 {
	all := map[string]float64{}
	for _, f := range c.Families {
		if f.Kind == Gauge && ofQueue(f.Name) {
			for i := range f.Points {
				all[f.Name] += f.Points[i].Value
			}
		}
	}
	return all
}

func TestSumsAreRightHoweverManyAreShown(t *testing.T) {
	for _, limit := range []int{0, 1, 3, 100} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			r := newRig(t, limit)
			ch, done := r.dial("/")
			for i := range 5 {
				name := fmt.Sprintf("q%d", i)
				declare(t, ch, name, nil)
				publish(t, ch, name, 1<<i)
			}
			for range 3 { // the selection may change
				c := r.collect()
				got := sums(c)
				if got["rabbitmq_queue_messages"] != 31 || got["rabbitmq_queue_messages_ready_bytes"] != 124 {
					t.Errorf("sums are %v, want 31 messages with 124 bytes ready", got)
				}
				if _, ok := value(c, `rabbitmq_queue_messages{vhost="/",queue="q4"}`); ok != (limit > 0) {
					t.Errorf("the largest queue has series of its own: %v", ok)
				}
				rest, hidden := value(c, `rabbitmq_queue_messages{vhost="",queue=""}`)
				if hidden != (limit > 0 && limit < 5) || limit == 1 && rest != 15 {
					t.Errorf("those that have none have %v messages (%v)", rest, hidden)
				}
			}
			done()
		})
	}
}

func TestTheFirstOfManyRanks(t *testing.T) {
	r := newRig(t, 1)
	v := r.vhost("v")
	var best ranks
	for i := range 200 {
		s := r.declare(v, fmt.Sprintf("%03d", i*37%200))
		best.offer(rank{mailbox: s, config: s.Config(), busy: i * 37 % 200 / 20}, 30)
	}
	best.trim(30)
	var names []string
	for i := range best {
		names = append(names, best[i].config.Name)
	}
	slices.Sort(names)
	// The twenty busiest are 180 to 199; of the next twenty, there are those with the lowest names.
	if len(names) != 30 || names[0] != "160" || names[9] != "169" || names[10] != "180" {
		t.Errorf("got %v", names)
	}
}
