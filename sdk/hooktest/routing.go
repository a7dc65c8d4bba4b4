package hooktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/curfewmq/curfew/sdk/hook"
)

// checkExchanges checks a plugin's declarations about exchanges, and its exchanges in each case.
func checkExchanges(t reporter, f hook.Factory, cases []Case) {
	t.Helper()
	seen := make(map[string]bool) // types and filters for which there was an exchange
	var offered []string
	for _, c := range append([]Case{{Name: "plain"}}, cases...) {
		p, _, err := f.New(c.Section.Decode)
		if err != nil {
			continue // Run has reported it
		}
		types := exchangeTypes(p)
		if offered == nil {
			checkTypes(t, types)
			checkExchangeArguments(t, "filter", filterArguments(p))
		}
		for _, s := range c.exchanges(p) {
			offered = append(offered, s.Type)
			x := &exchangeSubject{t: t, plugin: p, spec: s, name: c.Name + ": " + s.Type}
			if x.check() {
				seen[s.Type] = true
			} else if c.Exchange.Type != "" {
				_, err := x.tryDeclare()
				t.Errorf("%s: the exchange is refused, or nothing can be bound to it: %v", x.name, err)
			}
		}
	}
	slices.Sort(offered)
	for _, name := range slices.Compact(offered) {
		if !seen[name] {
			t.Errorf("no case has an exchange of type %s: give one with the arguments and binding keys that it needs", name)
		}
	}
}

// exchanges fills in each type if the case names none.
func (c Case) exchanges(p hook.Plugin) []ExchangeSpec {
	_, filters := p.(hook.ExchangeFilterer)
	types := exchangeTypes(p)
	if len(types) == 0 && !filters {
		return nil
	}
	if c.Exchange.Type != "" {
		return []ExchangeSpec{c.Exchange}
	}
	var all []ExchangeSpec
	if filters {
		s := c.Exchange
		s.Type = "direct"
		all = append(all, s)
	}
	for _, t := range types {
		s := c.Exchange
		s.Type = t.Name
		all = append(all, s)
	}
	return all
}

func checkTypes(t reporter, types []hook.ExchangeType) {
	t.Helper()
	var names []string
	for _, typ := range types {
		switch {
		case typ.Name == "" || len(typ.Name) > 255:
			t.Errorf("exchange type %q: want a name of 1 to 255 bytes", typ.Name)
		case slices.Contains([]string{"direct", "fanout", "topic", "headers"}, typ.Name):
			t.Errorf("exchange type %q: the broker has one of its own", typ.Name)
		case slices.Contains(names, typ.Name):
			t.Errorf("exchange type %q: offered twice", typ.Name)
		}
		if typ.Description == "" {
			t.Errorf("exchange type %q: no Description", typ.Name)
		}
		if (typ.New == nil) == (typ.Schedule == nil) {
			t.Errorf("exchange type %q: want one of New and Schedule", typ.Name)
		}
		for _, alias := range typ.Aliases {
			if alias == typ.Name || alias == "" || len(alias) > 255 {
				t.Errorf("exchange type %q: alias %q, want another name of 1 to 255 bytes", typ.Name, alias)
			}
		}
		names = append(names, typ.Name)
		checkExchangeArguments(t, typ.Name, typ.Arguments)
		checkTypeChecks(t, typ)
	}
}

// checkExchangeArguments passes odd values to each argument's check.
func checkExchangeArguments(t reporter, whose string, all []hook.ExchangeArgument) {
	t.Helper()
	var names []string
	for _, a := range all {
		if a.Name == "" || a.Name == "alternate-exchange" || slices.Contains(names, a.Name) {
			t.Errorf("%s: argument %q: want names other than the broker's, each once", whose, a.Name)
		}
		names = append(names, a.Name)
		if a.Check == nil {
			continue
		}
		for _, v := range anything {
			x := ExchangeSpec{Type: whose, Args: hook.Args{{Name: a.Name, Value: v}}}.exchange()
			steady(t, fmt.Sprintf("%s: %s = %s", whose, a.Name, brief(v)), func() error { return a.Check(x, v) })
		}
	}
}

// checkTypeChecks passes odd declarations and bindings to a type's checks.
func checkTypeChecks(t reporter, typ hook.ExchangeType) {
	t.Helper()
	for _, args := range oddArgs(typ) {
		x := ExchangeSpec{Type: typ.Name, Args: args}.exchange()
		if typ.Check != nil {
			steady(t, fmt.Sprintf("%s: Check with %s", typ.Name, brief(args)), func() error { return typ.Check(x) })
		}
		if typ.CheckBinding == nil {
			continue
		}
		for _, key := range hostileKeys {
			what := fmt.Sprintf("%s: CheckBinding with key %q and %s", typ.Name, brief(key), brief(args))
			steady(t, what, func() error { return typ.CheckBinding(x, key, args) })
		}
	}
}

// oddArgs are arguments with values that a type does not expect.
func oddArgs(typ hook.ExchangeType) []hook.Args {
	names := []string{"", "x-match", "no-such-argument"}
	for _, a := range typ.Arguments {
		names = append(names, a.Name)
	}
	odd := []hook.Args{nil, {}}
	for _, name := range names {
		for _, v := range anything {
			odd = append(odd, hook.Args{{Name: name, Value: v}}, hook.Args{{Name: name, Value: v}, {Name: name, Value: nil}})
		}
	}
	return odd
}

// steady runs a check twice, and requires the same answer and no panic.
func steady(t reporter, what string, check func() error) {
	t.Helper()
	text := func() (said string) {
		failed := contained(func() error {
			err := check()
			if err == nil {
				return nil
			}
			said = "error " + err.Error() // panics for a nil pointer
			if err.Error() == "" || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%s: refused with %q, want one line", what, err)
			}
			return nil
		})
		if failed != nil {
			t.Errorf("%s: the check %v", what, failed)
			return "error " + failed.Error()
		}
		return said
	}
	if first, second := text(), text(); first != second {
		t.Errorf("%s: got %q, then %q", what, first, second)
	}
}

func brief(v any) string {
	const most = 60
	s := fmt.Sprintf("%T %v", v, v)
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

var hostileKeys = []string{
	"", "1", "2", "10", "0", "-1", "1.5", "1e3", " 1", "+1", "01", "2147483648", "9223372036854775808", "a", "a.b.c", "#", "*.b.#", "%", "\x00", "\xff\xfe",
	strings.Repeat("k", 255), strings.Repeat("9", 255),
}

// exchangeSubject is an exchange of one kind.
type exchangeSubject struct {
	t      reporter
	plugin hook.Plugin
	spec   ExchangeSpec
	name   string

	pool []hook.Binding // bindings that the type accepts
}

// check reports whether the exchange can be checked: the plugin accepts it, and it has bindings of the plugin's type or a filter.
func (s *exchangeSubject) check() bool {
	s.t.Helper()
	e, err := s.tryDeclare()
	if err != nil {
		return false
	}
	if e.filter != nil {
		s.checkFilter()
	}
	if e.typ == nil {
		return e.filter != nil
	}
	if e.typ.Schedule != nil {
		s.checkSchedule()
		return true
	}
	if e.router == nil {
		s.t.Fatalf("%s: New returned nil", s.name)
	}
	s.pool = s.bindings(e)
	if len(s.pool) == 0 {
		return false
	}
	s.checkEmpty()
	for seed := range uint64(4) {
		s.checkScript(seed)
	}
	s.checkConcurrent()
	return true
}

// bindings returns bindings that the type accepts: to queues, and to exchanges of the same names.
func (s *exchangeSubject) bindings(e *Exchange) (pool []hook.Binding) {
	keys := s.spec.Keys
	if keys == nil {
		keys = hostileKeys
	}
	for _, key := range keys {
		for _, args := range append([]hook.Args{nil}, s.spec.BindingArgs...) {
			refused := e.typ.CheckBinding != nil && contained(func() error { return e.typ.CheckBinding(e.x, key, args) }) != nil
			if refused {
				continue
			}
			for i := range 6 {
				pool = append(pool, hook.Binding{Name: fmt.Sprintf("q%d", i%5), ToExchange: i == 5, Key: key, Args: args})
			}
		}
	}
	return pool
}

// letter is a message for an exchange. A new Publishing is made for each call.
type letter struct {
	now     hook.Instant
	key     string
	more    []string
	content Content
}

func (l letter) String() string {
	return fmt.Sprintf("key %q, more %q, headers %v", l.key, l.more, l.content.Headers)
}

// letters makes n messages. Equal seeds give equal messages.
func (s *exchangeSubject) letters(seed uint64, n int) []letter {
	r := rand.New(rand.NewPCG(seed, 7))
	all := make([]letter, n)
	for i := range all {
		all[i] = letter{now: now.Add(time.Duration(i) * time.Second), key: s.key(r), content: s.content(r)}
		for range r.IntN(3) * r.IntN(2) {
			all[i].more = append(all[i].more, s.key(r))
		}
	}
	return all
}

func (s *exchangeSubject) key(r *rand.Rand) string {
	switch r.IntN(3) {
	case 0:
		return pick(r, hostileKeys...)
	case 1:
		if len(s.pool) > 0 {
			return pick(r, s.pool...).Key
		}
	}
	return fmt.Sprintf("key.%d", r.IntN(1000))
}

// content returns one of the case's messages, unchanged or with other values in each header and part, or an arbitrary message.
func (s *exchangeSubject) content(r *rand.Rand) Content {
	if len(s.spec.Contents) == 0 || r.IntN(4) == 0 {
		return content(r)
	}
	c := pick(r, s.spec.Contents...)
	if r.IntN(2) == 0 {
		return c
	}
	odd := Content{Exchange: c.Exchange, Deaths: c.Deaths, Headers: map[string]any{}, Parts: map[hook.Part][]byte{}}
	for name := range c.Headers {
		odd.Headers[name] = pick(r, anything...)
	}
	for p := range c.Parts {
		odd.Parts[p] = pick(r, nil, []byte{}, []byte("x"), []byte("-1"), []byte("\xff\x00"), []byte(strings.Repeat("9", 100)))
	}
	return odd
}

// publishing makes a new Publishing. end ends its validity, like the end of a call.
func (l letter) publishing() (m *hook.Publishing, end func()) {
	buf := []byte(l.key)
	m = Publish(l.now, unsafe.String(unsafe.SliceData(buf), len(buf)), l.content, l.more...)
	return m, func() {
		for i := range buf {
			buf[i] = '!'
		}
		m.Now, m.More = -1, []string{"scribbled"}
		m.Bind(returned{})
	}
}

// answer is the result of routing a message.
type answer struct {
	names []string
	read  bool
	err   error
}

// route calls Route as the broker does, and checks that the Router keeps all rules.
func (*exchangeSubject) route(e *Exchange, l letter) (a answer) {
	m, end := l.publishing()
	defer end()
	const foreign = -9
	dst := []hook.Destination{foreign, foreign}
	got := dst
	err := contained(func() error {
		got = e.ask(m, slices.Grow(dst, 16))
		return nil
	})
	a.read = m.Read()
	switch {
	case err != nil:
		return answer{err: err}
	case len(got) < 2 || got[0] != foreign || got[1] != foreign:
		return answer{err: errors.New("does not append to dst")}
	case m.Key != l.key || m.Now != l.now || !slices.Equal(m.More, l.more):
		return answer{err: errors.New("changes the message")}
	}
	a.names, a.err = e.named(got[2:])
	for i := range got {
		got[i] = foreign
	}
	return a
}

func (s *exchangeSubject) tryDeclare() (e *Exchange, err error) {
	err = contained(func() (err error) {
		e, err = Declare(s.plugin, s.spec)
		return err
	})
	return e, err
}

func (s *exchangeSubject) declare() *Exchange {
	s.t.Helper()
	e, err := s.tryDeclare()
	if err != nil {
		s.t.Fatalf("%s: accepted once, then refused: %v", s.name, err)
	}
	return e
}

func (s *exchangeSubject) checkEmpty() {
	s.t.Helper()
	e := s.declare()
	for _, l := range s.letters(1, 20) {
		if a := s.route(e, l); a.err != nil || len(a.names) > 0 {
			s.t.Fatalf("%s: without bindings, Route of %s: got %v, error %v", s.name, l, a.names, a.err)
		}
	}
}

// checkScript adds and removes bindings at random, and routes messages in between.
func (s *exchangeSubject) checkScript(seed uint64) {
	s.t.Helper()
	r := rand.New(rand.NewPCG(seed, 11))
	e := s.declare()
	for step := range 60 {
		s.change(r, e)
		if step%6 == 0 {
			s.checkRoutes(e, s.letters(seed*100+uint64(step), 12), r)
		}
	}
	for len(e.bindings) > 0 {
		s.unbind(e, e.bindings[r.IntN(len(e.bindings))])
	}
	for _, l := range s.letters(seed, 20) {
		if a := s.route(e, l); a.err != nil || len(a.names) > 0 {
			s.t.Fatalf("%s: after the last Unbind, Route of %s: got %v, error %v", s.name, l, a.names, a.err)
		}
	}
}

// change adds or removes a binding.
func (s *exchangeSubject) change(r *rand.Rand, e *Exchange) {
	s.t.Helper()
	if len(e.bindings) > 0 && r.IntN(5) < 2 {
		s.unbind(e, e.bindings[r.IntN(len(e.bindings))])
		return
	}
	s.bind(e, pick(r, s.pool...))
}

func (s *exchangeSubject) bind(e *Exchange, b hook.Binding) {
	s.t.Helper()
	if err := contained(func() error { return e.bind(b) }); err != nil {
		s.t.Fatalf("%s: Bind with key %q, which CheckBinding accepted before: %v", s.name, b.Key, err)
	}
}

func (s *exchangeSubject) unbind(e *Exchange, b hook.Binding) {
	s.t.Helper()
	if err := contained(func() error { e.unbind(b); return nil }); err != nil {
		s.t.Fatalf("%s: Unbind with key %q: %v", s.name, b.Key, err)
	}
}

// contained runs call and returns its panic as an error.
func contained(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panics: %v", r)
		}
	}()
	return call()
}

// checkRoutes routes messages through e. Unless e's type is volatile, it also routes them through exchanges with the same bindings, and
// compares the results.
func (s *exchangeSubject) checkRoutes(e *Exchange, ls []letter, r *rand.Rand) {
	s.t.Helper()
	var fresh, shuffled *Exchange
	if !e.typ.Volatile {
		fresh, shuffled = s.rebuilt(e, nil), s.rebuilt(e, r)
	}
	for _, l := range ls {
		a := s.route(e, l)
		if a.err != nil {
			s.t.Fatalf("%s: Route of %s: %v", s.name, l, a.err)
		}
		if e.typ.Volatile {
			continue
		}
		s.same(e, l, a, "when it is asked again")
		s.same(fresh, l, a, "without earlier messages and removed bindings")
		if !s.spec.Ordered {
			s.same(shuffled, l, a, "with the same bindings in another order, as after a restart")
		}
		s.checkRead(e, l, a)
	}
}

func (s *exchangeSubject) same(e *Exchange, l letter, want answer, when string) {
	s.t.Helper()
	if a := s.route(e, l); a.err != nil || !slices.Equal(a.names, want.names) || a.read != want.read {
		s.t.Fatalf("%s: Route of %s: got %v and read %t, error %v, %s; was %v and %t", s.name, l, a.names, a.read, a.err, when, want.names, want.read)
	}
}

// rebuilt returns a new exchange with e's bindings; if r is not nil, they come in another order.
func (s *exchangeSubject) rebuilt(e *Exchange, r *rand.Rand) *Exchange {
	s.t.Helper()
	o := s.declare()
	o.names = slices.Clone(e.names) // the same numbers
	bindings := slices.Clone(e.bindings)
	if r != nil {
		r.Shuffle(len(bindings), func(i, j int) { bindings[i], bindings[j] = bindings[j], bindings[i] })
		o.names = nil // other numbers
	}
	for _, b := range bindings {
		s.bind(o, b)
	}
	return o
}

// checkRead routes other messages with the same keys. If Route reads nothing else of one of them, the broker reuses the result for all of
// them.
func (s *exchangeSubject) checkRead(e *Exchange, l letter, first answer) {
	s.t.Helper()
	answers := []answer{first}
	for i, other := range s.letters(uint64(len(l.key)), 6) {
		other.key, other.more, other.now = l.key, l.more, l.now.Add(time.Duration(i)*time.Hour)
		answers = append(answers, s.route(e, other))
	}
	unread := func(a answer) bool { return !a.read }
	i := slices.IndexFunc(answers, unread)
	if i < 0 {
		return
	}
	for _, a := range answers {
		if a.err == nil && !slices.Equal(a.names, answers[i].names) {
			s.t.Fatalf("%s: messages with key %q, more %q: got %v and %v, though Route read nothing else of one: the type must be Volatile",
				s.name, l.key, l.more, answers[i].names, a.names)
		}
	}
}

// checkConcurrent routes from several goroutines at once while another exchange changes. The race detector finds shared data.
func (s *exchangeSubject) checkConcurrent() {
	s.t.Helper()
	r := rand.New(rand.NewPCG(5, 5))
	e, other := s.declare(), s.declare()
	for range 30 {
		s.change(r, e)
	}
	ls := s.letters(99, 100)
	want := make([]answer, len(ls))
	for i, l := range ls {
		want[i] = s.route(e, l)
	}
	faults := make(chan string, len(ls)*4)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, l := range ls {
				a := s.route(e, l)
				if a.err != nil || !e.typ.Volatile && !slices.Equal(a.names, want[i].names) {
					faults <- fmt.Sprintf("%s: got %v, error %v, want %v", l, a.names, a.err, want[i].names)
				}
			}
		})
	}
	for range 50 {
		s.change(r, other)
	}
	wg.Wait()
	close(faults)
	if f, ok := <-faults; ok {
		s.t.Errorf("%s: Route from several goroutines: %s", s.name, f)
	}
}

// checkFilter calls a filter with arbitrary messages, one by one and from several goroutines.
func (s *exchangeSubject) checkFilter() {
	s.t.Helper()
	e, other := s.declare(), s.declare()
	for _, l := range s.letters(3, 200) {
		if err := pass(e, l); err != nil {
			s.t.Fatalf("%s: the filter %v on %s", s.name, err, l)
		}
	}
	faults := make(chan error, 4)
	var wg sync.WaitGroup
	for i := range uint64(4) {
		wg.Go(func() {
			var all []error
			for _, l := range s.letters(i%2, 50) {
				all = append(all, pass(e, l), pass(other, l))
			}
			faults <- errors.Join(all...)
		})
	}
	wg.Wait()
	for range 4 {
		if err := <-faults; err != nil {
			s.t.Errorf("%s: the filter, asked from several goroutines: %v", s.name, err)
			return
		}
	}
}

// pass calls a filter as the broker does.
func pass(e *Exchange, l letter) error {
	m, end := l.publishing()
	defer end()
	if err := contained(func() error { e.filter(m); return nil }); err != nil {
		return err
	}
	if m.Key != l.key || m.Now != l.now || !slices.Equal(m.More, l.more) {
		return errors.New("changes the message")
	}
	return nil
}
