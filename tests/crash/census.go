package crash

import (
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// census fetches everything there is from every place, while nobody else is at work, and so sees whether something is missing.
type census struct {
	*client
	layout   *layout
	sessions []*session
	held     [][]held // by session
}

// takeCensus takes it. It acknowledges a share of the messages, of 100, and gives back the others. That those are gone is
// proved with another message in each place, if it is to be proved.
func takeCensus(c *client, l *layout, share int, proved bool) error {
	k := &census{client: c, layout: l}
	if err := k.fetchAll(); err != nil {
		return err
	}
	for i, s := range k.sessions {
		if err := k.answer(s, k.held[i], share, proved); err != nil {
			return err
		}
	}
	if err := k.settle(); err != nil {
		return err
	}
	return k.leave()
}

// fetchAll fetches until nothing more comes, and everything has turned up that has to be there: messages may be on their way
// to where they have been looked for already.
func (k *census) fetchAll() error {
	var missing []*copied
	var err error
	complete := process.Poll(func() bool {
		var found int
		found, err = k.round()
		missing = k.ledger.missing()
		return err != nil || found == 0 && len(missing) == 0
	})
	if !complete {
		k.ledger.lost(missing)
	}
	return err
}

// round fetches everything there is from one place after the other.
func (k *census) round() (found int, err error) {
	for _, p := range k.layout.places {
		n, err := k.fetch(p)
		if err != nil {
			return 0, err
		}
		found += n
	}
	return found, nil
}

func (k *census) fetch(p *place) (found int, err error) {
	s := k.ledger.open(p, true, time.Now())
	var hs []held
	for {
		k.ledger.ask(s, time.Now())
		d, ok, err := k.Get(p.name, false)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		if c := k.ledger.deliver(s, read(&d, p.origin())); c != nil {
			hs = append(hs, held{d.DeliveryTag, c})
		}
	}
	k.sessions, k.held = append(k.sessions, s), append(k.held, hs)
	return len(hs), nil
}

func (k *census) answer(s *session, hs []held, share int, proved bool) error {
	e := evidence{at: s.place, seen: copies(hs)}
	for _, h := range hs {
		if k.random.IntN(100) >= share {
			k.ledger.giveBack(s, []*copied{h.copy}, time.Now())
			continue
		}
		k.ledger.acknowledge(s, h.copy, time.Now())
		e.acked = append(e.acked, h.copy)
		if err := k.Ack(h.tag, false); err != nil {
			return err
		}
	}
	if between := s.place.source != nil && s.place.dead != nil; between || !proved || len(hs) == 0 {
		return nil
	}
	return k.prove(&e)
}
