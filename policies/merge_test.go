package policies

import (
	"math/rand/v2"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestUserAndOperatorPolicy(t *testing.T) {
	for _, tc := range []struct {
		name, user, operator, want string
	}{
		{name: "lower user", user: `{"message-ttl":1}`, operator: `{"message-ttl":2}`, want: `{"message-ttl":1}`},
		{name: "lower operator", user: `{"message-ttl":3}`, operator: `{"message-ttl":2}`, want: `{"message-ttl":2}`},
		{name: "expires", user: `{"expires":3}`, operator: `{"expires":2}`, want: `{"expires":2}`},
		{name: "max-length", user: `{"max-length":0}`, operator: `{"max-length":2}`, want: `{"max-length":0}`},
		{name: "max-length-bytes", user: `{"max-length-bytes":9}`, operator: `{"max-length-bytes":2}`, want: `{"max-length-bytes":2}`},
		{name: "max-in-memory", user: `{"max-in-memory-length":9,"max-in-memory-bytes":1}`, operator: `{"max-in-memory-length":2,"max-in-memory-bytes":2}`, want: `{"max-in-memory-bytes":1,"max-in-memory-length":2}`},
		{name: "delivery-limit", user: `{"delivery-limit":9}`, operator: `{"delivery-limit":2}`, want: `{"delivery-limit":2}`},
		{name: "user without a delivery limit", user: `{"delivery-limit":-1}`, operator: `{"delivery-limit":2}`, want: `{"delivery-limit":2}`},
		{name: "operator without a delivery limit", user: `{"delivery-limit":9}`, operator: `{"delivery-limit":-1}`, want: `{"delivery-limit":9}`},
		{name: "overflow", user: `{"overflow":"drop-head"}`, operator: `{"overflow":"reject-publish"}`, want: `{"overflow":"reject-publish"}`},
		{name: "queue-version", user: `{"queue-version":1}`, operator: `{"queue-version":2}`, want: `{"queue-version":2}`},
		{name: "target-group-size", user: `{"target-group-size":3}`, operator: `{"target-group-size":2}`, want: `{"target-group-size":3}`},
		{
			name: "delayed retry", user: `{"delayed-retry-type":"all","delayed-retry-min":1,"delayed-retry-max":9}`,
			operator: `{"delayed-retry-type":"failed","delayed-retry-min":2,"delayed-retry-max":8}`,
			want:     `{"delayed-retry-max":8,"delayed-retry-min":2,"delayed-retry-type":"failed"}`,
		},
		{name: "strategy", user: `{"expiry-strategy":"rabbitmq"}`, operator: `{"expiry-strategy":"deadline"}`, want: `{"expiry-strategy":"deadline"}`},
		{
			name: "different keys", user: `{"dead-letter-exchange":"x","max-length":5}`, operator: `{"expires":1,"message-ttl":1,"overflow":"drop-head"}`,
			want: `{"dead-letter-exchange":"x","expires":1,"max-length":5,"message-ttl":1,"overflow":"drop-head"}`,
		},
		{name: "user alone", user: `{"message-ttl":1}`, want: `{"message-ttl":1}`},
		{name: "operator alone", operator: `{"message-ttl":1}`, want: `{"message-ttl":1}`},
		{name: "none", want: `{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a Applied
			if tc.user != "" {
				a.User = mustParse(t, rabbitMQ, User, `{"pattern":"","definition":`+tc.user+`}`)
			}
			if tc.operator != "" {
				a.Operator = mustParse(t, rabbitMQ, Operator, `{"pattern":"","definition":`+tc.operator+`}`)
			}
			got, _ := a.Definition().MarshalJSON()
			if string(got) != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			for _, e := range a.Definition() {
				if v, ok := a.Setting(e.Key, nil, false, Classic); !ok || v != e.Value {
					t.Errorf("setting %s: got %v, %t, want %v", e.Key, v, ok, e.Value)
				}
			}
		})
	}
}

func TestPolicyAndArgument(t *testing.T) {
	for _, tc := range []struct {
		name, policy, key string
		arg               any
		queueType         string
		want              any
	}{
		{name: "lower argument", policy: `{"message-ttl":2}`, key: "message-ttl", arg: int16(1), want: int16(1)},
		{name: "lower policy", policy: `{"message-ttl":2}`, key: "message-ttl", arg: uint32(3), want: int64(2)},
		{name: "expires", policy: `{"expires":2}`, key: "expires", arg: int64(3), want: int64(2)},
		{name: "max-length", policy: `{"max-length":2}`, key: "max-length", arg: int32(0), want: int32(0)},
		{name: "max-length-bytes", policy: `{"max-length-bytes":2}`, key: "max-length-bytes", arg: uint8(3), want: int64(2)},
		{name: "delivery-limit", policy: `{"delivery-limit":5}`, key: "delivery-limit", arg: int8(7), queueType: Quorum, want: int64(5)},
		{name: "argument without a delivery limit", policy: `{"delivery-limit":5}`, key: "delivery-limit", arg: int8(-1), queueType: Quorum, want: int64(5)},
		{name: "policy without a delivery limit", policy: `{"delivery-limit":-1}`, key: "delivery-limit", arg: uint16(7), queueType: Quorum, want: uint16(7)},
		{name: "overflow", policy: `{"overflow":"drop-head"}`, key: "overflow", arg: "reject-publish", want: "reject-publish"},
		{name: "overflow of a quorum queue", policy: `{"overflow":"drop-head"}`, key: "overflow", arg: "reject-publish", queueType: Quorum, want: "drop-head"},
		{name: "dead-letter-exchange", policy: `{"dead-letter-exchange":"p"}`, key: "dead-letter-exchange", arg: "a", want: "a"},
		{name: "empty dead-letter-exchange", policy: `{"dead-letter-exchange":"p"}`, key: "dead-letter-exchange", arg: "", want: ""},
		{name: "dead-letter-routing-key", policy: `{"dead-letter-routing-key":"p"}`, key: "dead-letter-routing-key", arg: "a", want: "a"},
		{name: "dead-letter-strategy", policy: `{"dead-letter-strategy":"at-least-once"}`, key: "dead-letter-strategy", arg: "at-most-once", queueType: Quorum, want: "at-most-once"},
		{name: "alternate-exchange", policy: `{"alternate-exchange":"p"}`, key: "alternate-exchange", arg: "a", queueType: Exchange, want: "a"},
		{name: "strategy", policy: `{"expiry-strategy":"rabbitmq"}`, key: expiryStrategyKey, arg: "deadline", want: "rabbitmq"},
		{name: "delayed-retry-type", policy: `{"delayed-retry-type":"all","delayed-retry-min":1}`, key: "delayed-retry-type", arg: "failed", queueType: Quorum, want: "all"},
		{name: "other keys", policy: `{"message-ttl":1}`, key: "max-priority", arg: int8(3), want: int8(3)},
		{name: "no integer", policy: `{"message-ttl":1}`, key: "message-ttl", arg: "a", want: int64(1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.queueType == "" {
				tc.queueType = Classic
			}
			a := Applied{User: mustParse(t, rabbitMQ, User, `{"pattern":"","definition":`+tc.policy+`}`)}
			if got, ok := a.Setting(tc.key, tc.arg, true, tc.queueType); !ok || got != tc.want {
				t.Errorf("got %#v, %t, want %#v", got, ok, tc.want)
			}
		})
	}
}

func TestNothingApplies(t *testing.T) {
	var none Applied
	if v, ok := none.Setting("message-ttl", nil, false, Classic); ok || v != nil {
		t.Errorf("neither policy nor argument: got %v, %t", v, ok)
	}
	if v, ok := none.Setting("message-ttl", int8(1), true, Classic); !ok || v != int8(1) {
		t.Errorf("an argument: got %v, %t", v, ok)
	}
	if d := none.Definition(); d != nil {
		t.Errorf("definition: got %v", d)
	}
}

// Of keys that are limits, none in force is above any that was set: by argument, user or operator policy.
func TestNoLimitIsExceeded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		key := []string{"message-ttl", "expires", "max-length", "max-length-bytes"}[r.IntN(4)]
		a, limits := randomLimits(t, r, key)
		arg, hasArg := r.Int64N(100)+1, r.IntN(2) == 0
		if hasArg {
			limits = append(limits, arg)
		}
		got, ok := a.Setting(key, arg, hasArg, Classic)
		if ok != (len(limits) > 0) {
			t.Fatalf("%s of %v: set is %t", key, limits, ok)
		}
		among := !ok
		for _, limit := range limits {
			n, _ := got.(int64)
			among = among || n == limit
			if n > limit {
				t.Fatalf("%s of %v: got %v", key, limits, got)
			}
		}
		if !among {
			t.Fatalf("%s of %v: got %v, which nobody set", key, limits, got)
		}
	}
}

func randomLimits(t *testing.T, r *rand.Rand, key string) (a Applied, limits []int64) {
	t.Helper()
	random := func(kind Kind) *Policy {
		if r.IntN(3) == 0 {
			return nil
		}
		limit := r.Int64N(100) + 1
		p, err := parse(kind, Policy{Name: "p", Definition: newDefinition(map[string]any{key: limit})})
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, limit)
		return p
	}
	a.User, a.Operator = random(User), random(Operator)
	return a, limits
}

// Merging settles on one value whichever way round limits are compared, so it is the same on every node and restart.
func TestLimitsMergeSymmetrically(t *testing.T) {
	for _, m := range []hook.Merge{hook.TakeLower, hook.TakeHigher, hook.TakeLowerLimit} {
		for a := int64(-2); a < 3; a++ {
			for b := int64(-2); b < 3; b++ {
				if pick(m, a, b) != pick(m, b, a) {
					t.Errorf("merge %d of %d and %d depends on their order", m, a, b)
				}
			}
			if pick(m, a, a) != a {
				t.Errorf("merge %d of %d with itself is another", m, a)
			}
		}
	}
}
