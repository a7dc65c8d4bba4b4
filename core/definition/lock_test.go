package definition

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One goroutine at a time holds a Lock, and simulated time passes while others wait for it.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holders = 10
		var l Lock
		var all sync.WaitGroup
		began, held := time.Now(), 0
		for range holders {
			all.Go(func() {
				l.Lock()
				defer l.Unlock()
				if held++; held != 1 {
					t.Errorf("%d hold it", held)
				}
				time.Sleep(time.Second)
				held--
			})
		}
		all.Wait()
		if took := time.Since(began); took != holders*time.Second {
			t.Errorf("took %v, want %v", took, holders*time.Second)
		}
	})
}

// A goroutine that unlocks the Lock and wants it again lets waiting ones go first.
func TestLockIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock
		got := false
		l.Lock()
		go func() {
			l.Lock()
			defer l.Unlock()
			got = true
		}()
		synctest.Wait()
		l.Unlock()
		l.Lock()
		defer l.Unlock()
		if !got {
			t.Error("the one who waited did not get it")
		}
	})
}
