package vhost

import "testing"

// A request that panicked while it changed a virtual host left it locked, or its next changes waiting.
func TestAChangeThatPanicsLeavesNothingLocked(t *testing.T) {
	v, _ := newVHostWith(t, &memoryLog{})
	for _, when := range []string{"planned", "applied"} {
		func() {
			defer func() { _ = recover() }()
			_ = v.changes.make(fixedMode(exclusive), func() (func(), error) {
				if when == "planned" {
					panic("at night")
				}
				return func() { panic("at night") }, nil
			})
			t.Errorf("%s: it did not panic", when)
		}()
		if _, err := v.DeclareQueue(QueueDeclare{Name: when, Durable: true}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}
