package queue

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Properties that messages in a row have in common are stored once: what x-death says of thousands is the same.
func TestPropertiesAreStoredOnce(t *testing.T) {
	var s store
	defer s.release()
	origin := &RoutingInfo{Exchange: "dlx", Key: "retry"}
	props, body := bytes.Repeat([]byte("x-death "), 40), bytes.Repeat([]byte("b"), 100)
	const n = 10_000
	slots := make([]slot, n)
	for i := range slots {
		slots[i] = s.add(second, &Message{Routing: origin, Props: props, Body: body}, strategyData{}, 0)
	}
	if most := n * 160; s.residentBytes > most {
		t.Errorf("%d bytes for %d messages, more than %d", s.residentBytes, n, most)
	}
	for i, at := range slots {
		if r := s.read(at); !bytes.Equal(r.props, props) || !bytes.Equal(r.body, body) || string(r.key) != "retry" {
			t.Fatalf("message %d is not what it was", i)
		}
	}
}

// Whatever is done to records, they read as they were, and so does what the journal gets of them.
func TestSharedPropertiesModel(t *testing.T) {
	type message struct {
		at          slot
		props, body []byte
		key         string
		bcc         []string
		mark        strategyData
		entered     hook.Instant
	}
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var s store
		var ms []*message
		now := hook.Instant(second)
		common := [][]byte{bytes.Repeat([]byte("a"), 200), bytes.Repeat([]byte("b"), 200), bytes.Repeat([]byte("c"), worthSharing), []byte("short"), nil}
		add := func() {
			m := &message{props: common[rnd.IntN(len(common))], body: bytes.Repeat([]byte{byte(rnd.IntN(256))}, rnd.IntN(300)), key: strconv.Itoa(rnd.IntN(1000))}
			m.entered = now
			if rnd.IntN(5) == 0 {
				m.bcc = []string{"one", "two"}
			}
			p := Message{Routing: &RoutingInfo{Exchange: "e", Key: m.key, BCC: m.bcc}, Props: m.props, Body: m.body}
			v := hook.Verdict{}
			if rnd.IntN(4) == 0 {
				v.State = int64(rnd.Uint64())
			}
			m.mark = strategyDataOf(&v)
			m.at = s.add(now, &p, m.mark, slotFlagsOf(&p, &v, m.mark))
			ms = append(ms, m)
		}
		for range 5000 {
			now += hook.Instant(rnd.IntN(3)) * 1e6
			switch k := rnd.IntN(10); {
			case k < 6 || len(ms) == 0:
				add()
			case k < 8:
				i := rnd.IntN(len(ms))
				s.free(ms[i].at)
				ms = append(ms[:i], ms[i+1:]...)
			case k < 9:
				m := ms[rnd.IntN(len(ms))]
				if m.at.segment != s.last() {
					m.at = s.move(m.at)
				}
			default:
				m := ms[rnd.IntN(len(ms))]
				m.mark = strategyData{state: int64(rnd.Uint64()), digest: rnd.Uint64()}
				s.setStrategyData(&m.at, m.mark)
			}
			if rnd.IntN(500) == 0 {
				for _, m := range ms {
					s.free(m.at)
				}
				ms = nil
			}
		}
		var again store
		for i, m := range ms {
			same := func(what string, r record) {
				t.Helper()
				if !bytes.Equal(r.props, m.props) || !bytes.Equal(r.body, m.body) || string(r.key) != m.key || r.strategyData != m.mark ||
					len(blindKeys(r.bcc)) != len(m.bcc) || r.enqueued < m.entered || r.enqueued > m.entered+1e6 {
					t.Fatalf("seed %d: message %d is not what it was %s", seed, i, what)
				}
			}
			same("in the store", s.read(m.at))
			whole := s.peek(m.at)
			if len(whole) != int(m.at.length) {
				t.Fatalf("seed %d: a record of %d bytes has %d", seed, m.at.length, len(whole))
			}
			in := reader{b: whole}
			if _, _, n := in.record(opEnqueued, len(whole), m.at.flags); in.bad || n != len(m.body) {
				t.Fatalf("seed %d: the body in the journal has %d bytes, want %d", seed, n, len(m.body))
			}
			same("after a restart", again.read(again.restore(m.entered, whole, m.at.flags&journalled)))
		}
		live := 0
		for _, m := range ms {
			live += int(m.at.length)
			s.free(m.at)
		}
		if s.live != 0 {
			t.Fatalf("seed %d: %d bytes are live after all is gone", seed, s.live)
		}
		s.release()
		again.release()
	}
}
