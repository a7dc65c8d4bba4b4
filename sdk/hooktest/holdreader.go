package hooktest

import (
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
