package hooktest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// maxHoldHeaders is the maximum number of headers from which a plugin may read holds.
const maxHoldHeaders = 8

// checkHolds calls a plugin with headers that hold messages, if it reads any.
func checkHolds(t reporter, p hook.Plugin) {
	t.Helper()
	r, ok := p.(hook.HoldReader)
	if !ok {
		return
	}
	names := r.HoldHeaders()
	if len(names) == 0 {
		return
	}
	if len(names) > maxHoldHeaders {
		t.Errorf("HoldHeaders: reads %d headers, at most %d", len(names), maxHoldHeaders)
		return
	}
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], name) {
			t.Errorf("HoldHeaders: reads the header %q, which is empty or named twice", name)
		}
	}
	calls := holdCalls(len(names))
	want := make([]string, len(calls))
	for i, values := range calls {
		want[i] = readHold(t, r, values)
	}
	faults := make(chan string, 4*len(calls))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var quiet silent
			for i, values := range calls {
				if got := readHold(&quiet, r, values); got != want[i] {
					faults <- fmt.Sprintf("ReadHold(%.80v): got %s, then %s", values, want[i], got)
				}
			}
		})
	}
	wg.Wait()
	close(faults)
	if f, ok := <-faults; ok {
		t.Errorf("%s", f)
	}
}

// holdCalls returns values for n headers: each value alone in each place, and in all places.
func holdCalls(n int) (calls [][]any) {
	values := slices.Concat(anything, []any{time.Unix(0, 0), now.Time(), now.Time().Add(time.Hour), time.Unix(253402300799, 0), "300", []byte("\xff"), int64(-1), 0.5})
	for _, v := range values {
		all := make([]any, n)
		for i := range all {
			alone := make([]any, n)
			alone[i], all[i] = v, v
			calls = append(calls, alone)
		}
		calls = append(calls, all)
	}
	return calls
}

// readHold makes a call as the broker does, and describes the answer.
func readHold(t reporter, r hook.HoldReader, values []any) (answer string) {
	t.Helper()
	what := fmt.Sprintf("ReadHold(%.80v)", values)
	lent := slices.Clone(values)
	err := contained(func() error {
		w, err := r.ReadHold(now, lent)
		answer = fmt.Sprintf("%+v", w)
		switch {
		case err != nil:
			answer = "the error " + err.Error()
			if err.Error() == "" || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%s: refused with %q, want one line", what, err)
			}
		case w.After < 0 || w.Until < 0:
			t.Errorf("%s: got %+v, which is before now", what, w)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for i := range lent {
		lent[i] = "read after the call"
	}
	return answer
}

// hostileExpirations are expiration properties that publishers may send.
var hostileExpirations = []string{
	"", "0", "1", "60000", "315360000000", "315360000001", "9223372036854775807", "9223372036854775808", "-1", "-9223372036854775808", "+5", "007", "1.5",
	"1e3", "0x10", " 1", "1 ", "1\n", "\r\n", "\x00", "\xff\xfe", "\u00fc", "\u0661", "PT1M", "never", strings.Repeat("9", 255), strings.Repeat("0", 255),
}

// checkExpirations calls a plugin with expiration properties, if it reads them.
func checkExpirations(t reporter, p hook.Plugin) {
	t.Helper()
	checker, ok := p.(hook.ExpirationChecker)
	if !ok {
		return
	}
	first := make([]string, len(hostileExpirations))
	for i, raw := range hostileExpirations {
		first[i] = readExpiration(t, checker, []byte(raw))
	}
	steady := true
	reused := make([]byte, 0, 256) // like the broker's buffers
	for i, raw := range hostileExpirations {
		if again := readExpiration(t, checker, append(reused, raw...)); again != first[i] {
			t.Errorf("CheckExpiration(%.40q): got %s, then %s", raw, first[i], again)
			steady = false
		}
	}
	if steady { // otherwise goroutines would only find the same fault again, or race for memory that the plugin retains
		checkExpirationsAtOnce(t, checker, first)
	}
}

// checkExpirationsAtOnce calls the plugin from several goroutines at once. The race detector finds shared data.
func checkExpirationsAtOnce(t reporter, p hook.ExpirationChecker, want []string) {
	t.Helper()
	faults := make(chan string, 4*len(want))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var quiet silent
			for i, raw := range hostileExpirations {
				if got := readExpiration(&quiet, p, []byte(raw)); got != want[i] {
					faults <- fmt.Sprintf("CheckExpiration(%.40q): got %s, from several goroutines %s", raw, want[i], got)
				}
			}
		})
	}
	wg.Wait()
	close(faults)
	if f, ok := <-faults; ok {
		t.Errorf("%s", f)
	}
}

// readExpiration makes a call as the broker does, and describes the answer.
func readExpiration(t reporter, p hook.ExpirationChecker, raw []byte) (answer string) {
	t.Helper()
	before := bytes.Clone(raw)
	what := fmt.Sprintf("CheckExpiration(%.40q)", raw)
	err := contained(func() error {
		limit, err := p.CheckExpiration(raw)
		answer = fmt.Sprintf("the limit %d", limit.N())
		switch {
		case err != nil:
			answer = "the error " + err.Error()
			if err.Error() == "" || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%s: refused with %q, want one line", what, err)
			}
		case limit < 0:
			t.Errorf("%s: there is no limit %d; the absent one is 0", what, limit)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if !bytes.Equal(raw, before) {
		t.Errorf("%s: changes the property", what)
	}
	for i := range raw {
		raw[i] = '!'
	}
	return answer
}

// silent is a reporter for faults that were reported before.
type silent struct{}

func (*silent) Helper()               {}
func (*silent) Errorf(string, ...any) {}
func (*silent) Fatalf(string, ...any) {}
