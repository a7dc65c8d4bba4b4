package policies

import (
	"errors"
	"math"
	"strings"
	"testing"
)

const validTTL = `"definition":{"message-ttl":1}`

// RabbitMQ 3.10's answers to the same input, except for texts that RabbitMQ 4 words differently (apply-to, "/utf8") and
// its line breaks at column 80.
func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		name       string
		kind       Kind
		definition string // of a policy that is fine otherwise
		body       string // or all of it
		want       string // the lines
	}{
		{name: "string for a number", definition: `{"message-ttl":"a"}`, want: `<<"a">> is not a valid message TTL`},
		{name: "negative", definition: `{"message-ttl":-1}`, want: `-1 is not a valid message TTL`},
		{name: "integral float", definition: `{"message-ttl":1.0}`, want: `1.0 is not a valid message TTL`},
		{name: "exponent", definition: `{"message-ttl":1e3}`, want: `1.0e3 is not a valid message TTL`},
		{name: "fraction", definition: `{"message-ttl":1.5}`, want: `1.5 is not a valid message TTL`},
		{name: "null", definition: `{"message-ttl":null}`, want: `null is not a valid message TTL`},
		{name: "true", definition: `{"message-ttl":true}`, want: `true is not a valid message TTL`},
		{name: "empty array", definition: `{"message-ttl":[]}`, want: `[] is not a valid message TTL`},
		{name: "empty object", definition: `{"message-ttl":{}}`, want: `#{} is not a valid message TTL`},
		{name: "array", definition: `{"message-ttl":[1,"a",null,{"b":2.5}]}`, want: `[1,<<"a">>,null,#{<<"b">> => 2.5}] is not a valid message TTL`},
		{name: "object", definition: `{"message-ttl":{"b":[true],"a":1}}`, want: `#{<<"a">> => 1,<<"b">> => [true]} is not a valid message TTL`},
		{name: "empty string", definition: `{"message-ttl":""}`, want: `<<>> is not a valid message TTL`},
		{name: "operator", kind: Operator, definition: `{"message-ttl":"a"}`, want: `<<"a">> is not a valid message TTL`},

		{name: "expires 0", definition: `{"expires":0}`, want: `0 is not a valid queue expiry`},
		{name: "max-length", definition: `{"max-length":-1}`, want: `-1 is not a valid maximum length`},
		{name: "max-length-bytes", definition: `{"max-length-bytes":-1}`, want: `-1 is not a valid maximum length in bytes`},
		{name: "max-in-memory-length", definition: `{"max-in-memory-length":-1}`, want: `-1 is not a valid maximum memory in bytes`},
		{name: "max-in-memory-bytes", definition: `{"max-in-memory-bytes":-1}`, want: `-1 is not a valid maximum memory in bytes`},
		{name: "overflow", definition: `{"overflow":"a"}`, want: `<<"a">> is not a valid overflow value`},
		{name: "queue-mode", definition: `{"queue-mode":0}`, want: `0 is not a valid queue-mode value`},
		{name: "queue-version", definition: `{"queue-version":3}`, want: `3 is not a valid queue-version value`},
		{name: "queue-leader-locator", definition: `{"queue-leader-locator":"a"}`, want: `<<"a">> is not a valid queue leader locator value`},
		{name: "queue-master-locator", definition: `{"queue-master-locator":"x"}`, want: `<<"x">> invalid queue-master-locator value`},
		{name: "delivery-limit", definition: `{"delivery-limit":"a"}`, want: `<<"a">> is not a valid delivery limit`},
		{name: "delayed-retry-type", definition: `{"delayed-retry-type":"a","delayed-retry-min":1}`, want: `<<"a">> is not a valid delayed retry type`},
		{name: "a type without a minimum", definition: `{"delayed-retry-type":"all"}`, want: `delayed-retry-min is required`},
		{name: "a type without a minimum, operator", kind: Operator, definition: `{"delayed-retry-type":"all"}`, want: `delayed-retry-min is required`},
		{name: "a maximum below the minimum", definition: `{"delayed-retry-min":10,"delayed-retry-max":9}`, want: `delayed-retry-max is below delayed-retry-min`},
		{name: "delayed-retry-multiplier", definition: `{"delayed-retry-multiplier":0}`, want: `0 is not a valid delayed retry multiplier, expected a number from 1 to 1000`},
		{name: "an unknown key comes first", definition: `{"delayed-retry-type":"all","zzz":1}`, want: `[{<<"zzz">>,1}] are not recognised policy settings`},
		{name: "initial-cluster-size", definition: `{"initial-cluster-size":-1}`, want: `-1 is not a valid cluster size`},
		{name: "segment size", definition: `{"stream-max-segment-size-bytes":3000000001}`, want: `3000000001 is not a valid segment size`},
		{name: "filter size", definition: `{"stream-filter-size-bytes":15}`, want: `15 is not a valid filter size. Valid range is 16-255`},
		{name: "max-age without a unit", definition: `{"max-age":"10"}`, want: `<<"10">> is not a valid max age`},
		{name: "max-age of no length", definition: `{"max-age":"0s"}`, want: `<<"0s">> is not a valid max age`},
		{name: "max-age with a small unit", definition: `{"max-age":"1d"}`, want: `<<"1d">> is not a valid max age`},
		{name: "max-age with a fraction", definition: `{"max-age":"1.5D"}`, want: `<<"1.5D">> is not a valid max age`},
		{name: "max-age of a unit", definition: `{"max-age":"Y"}`, want: `<<"Y">> is not a valid max age`},
		{name: "alternate-exchange", definition: `{"alternate-exchange":1}`, want: `1 is not a valid alternate exchange name`},
		{name: "dead-letter-exchange", definition: `{"dead-letter-exchange":1.5}`, want: `1.5 is not a valid dead letter exchange name`},
		{name: "dead-letter-routing-key", definition: `{"dead-letter-routing-key":{}}`, want: `#{} is not a valid dead letter routing key`},
		{name: "dead-letter-strategy", definition: `{"dead-letter-strategy":"a"}`, want: `<<"a">> is not a valid dead letter strategy`},
		{name: "ha-mode", definition: `{"ha-mode":"x"}`, want: `<<"x">> is not a valid ha-mode value`},
		{name: "ha-sync-mode", definition: `{"ha-sync-mode":"x"}`, want: `ha-sync-mode must be "manual" or "automatic", got <<"x">>`},
		{name: "ha-sync-batch-size", definition: `{"ha-sync-batch-size":0}`, want: `ha-sync-batch-size takes an integer greater than 0, 0 given`},
		{name: "a name no exchange can have", definition: `{"dead-letter-exchange":"` + strings.Repeat("x", 256) + `"}`, want: `<<"` + strings.Repeat("x", 256) + `">> is not a valid dead letter exchange name`},

		{name: "unknown", definition: `{"foo":1}`, want: `[{<<"foo">>,1}] are not recognised policy settings`},
		{name: "two unknown", definition: `{"foo":1,"bar":"x"}`, want: `[{<<"bar">>,<<"x">>},{<<"foo">>,1}] are not recognised policy settings`},
		{name: "unknown of values", definition: `{"foo":{"a":[1,2,"b"]}}`, want: `[{<<"foo">>,#{<<"a">> => [1,2,<<"b">>]}}] are not recognised policy settings`},
		{name: "empty name", definition: `{"":1}`, want: `[{<<>>,1}] are not recognised policy settings`},
		{name: "argument", definition: `{"max-priority":3}`, want: `[{<<"max-priority">>,3}] are not recognised policy settings`},
		{name: "value before unknown", definition: `{"foo":1,"message-ttl":-1}`, want: `-1 is not a valid message TTL`},
		{name: "first value", definition: `{"message-ttl":-1,"expires":0}`, want: `0 is not a valid queue expiry`},
		{name: "not for operators", kind: Operator, definition: `{"dead-letter-exchange":"a"}`, want: `[{<<"dead-letter-exchange">>,<<"a">>}] are not recognised policy settings`},
		{name: "not for operators, nor valid", kind: Operator, definition: `{"alternate-exchange":[]}`, want: `[{<<"alternate-exchange">>,[]}] are not recognised policy settings`},
		{name: "empty", definition: `{}`, want: `no policy provided`},
		{name: "empty, as an array", definition: `[]`, want: `no policy provided`},
		{name: "no object", definition: `[1]`, want: `definition must be a dictionary: [1]`},
		{name: "null definition", definition: `null`, want: `definition must be a dictionary: null`},

		{name: "apply-to", body: `{"pattern":"x",` + validTTL + `,"apply-to":"x"}`, want: `apply-to 'x' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'`},
		{name: "apply-to null", body: `{"pattern":"x",` + validTTL + `,"apply-to":null}`, want: `apply-to 'null' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'`},
		{name: "apply-to empty", body: `{"pattern":"x",` + validTTL + `,"apply-to":""}`, want: `apply-to '' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'`},
		{name: "pattern no string", body: `{"pattern":1,` + validTTL + `}`, want: `pattern should be a binary but was 1`},
		{name: "pattern null", body: `{"pattern":null,` + validTTL + `}`, want: `pattern should be a binary but was null`},
		{name: "pattern in an array", body: `{"pattern":["a"],` + validTTL + `}`, want: `pattern should be a binary but was [<<"a">>]`},
		{name: "pattern too long", body: `{"pattern":"` + strings.Repeat("x", 1025) + `",` + validTTL + `}`, want: `pattern must not exceed 1024 bytes`},
		{name: "priority no number", body: `{"pattern":"x",` + validTTL + `,"priority":"7"}`, want: `priority should be a number, actually was <<"7">>`},
		{name: "priority null", body: `{"pattern":"x",` + validTTL + `,"priority":null}`, want: `priority should be a number, actually was null`},
		{name: "priority a list", body: `{"pattern":"x",` + validTTL + `,"priority":[]}`, want: `priority should be a number, actually was []`},
		{name: "fractional priority", body: `{"pattern":"x",` + validTTL + `,"priority":1.5}`, want: `priority should be an integer, actually was 1.5`},
		{name: "huge priority", body: `{"pattern":"x",` + validTTL + `,"priority":99999999999999999999}`, want: `priority should be an integer of 64 bits, actually was 99999999999999999999`},
		{
			name: "everything at once", body: `{"pattern":"(","apply-to":"x","priority":"x","definition":{"foo":1}}`,
			want: `[{<<"foo">>,1}] are not recognised policy settings` + "\n" +
				`apply-to 'x' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'` + "\n" +
				"pattern should be regular expression but is invalid: missing closing ): (\n" +
				`priority should be a number, actually was <<"x">>`,
		},

		// RabbitMQ accepts these; the errors say why we do not.
		{name: "huge", definition: `{"message-ttl":99999999999999999999}`, want: `99999999999999999999 is not a valid message TTL`},
		{name: "huge within", definition: `{"ha-params":[[99999999999999999999]]}`, want: `integer 99999999999999999999 is out of range: 64 bits`},
		{name: "key twice", definition: `{"message-ttl":1,"message-ttl":2}`, want: `[<<"message-ttl">>] duplicate keys not allowed`},
		{name: "member twice", body: `{"pattern":"a","pattern":"b",` + validTTL + `}`, want: `[<<"pattern">>] duplicate keys not allowed`},
		{name: "deep", definition: `{"ha-params":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`, want: `policy must not nest deeper than 16`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := tc.body
			if body == "" {
				body = `{"pattern":"x","definition":` + tc.definition + `}`
			}
			_, err := rabbitMQ.Parse(tc.kind, "p", []byte(body))
			if want := "Validation failed\n\n" + tc.want + "\n"; err == nil || err.Error() != want {
				t.Errorf("Parse: got %q, want %q", err, want)
			}
		})
	}
}

func TestIncomplete(t *testing.T) {
	for body, want := range map[string]string{
		``:                            "[{key_missing,pattern},{key_missing,definition}]",
		`null`:                        "[{key_missing,pattern},{key_missing,definition}]",
		`{}`:                          "[{key_missing,pattern},{key_missing,definition}]",
		`{"pattern":"x"}`:             "[{key_missing,definition}]",
		`{"definition":{"foo":1}}`:    "[{key_missing,pattern}]",
		`{"apply-to":"x","pattern":}`: "not_json: at byte 27: invalid character '}' looking for beginning of value",
		`{"pattern":"x"} {`:           "not_json: at byte 17: invalid character '{' after top-level value",
		`{"pattern":"x"`:              "not_json: at byte 14: unexpected end of JSON input",
		`[1]`:                         "not_json: [1] is no object",
		"{\"pattern\":\"\xff\"}":      "not_json: not UTF-8",
		`{"priority":1e400}`:          "not_json: number 1e400 is out of range",
	} {
		_, err := rabbitMQ.Parse(User, "p", []byte(body))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %q, want %q", body, err, want)
			continue
		}
		if _, missing := errors.AsType[*MissingError](err); missing == errors.Is(err, ErrNotJSON) {
			t.Errorf("%s: %T is a MissingError or ErrNotJSON", body, err)
		}
	}
}

func TestBounds(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Policy
		body string
		want string
	}{
		{name: "no name", p: Policy{}, want: "policy name must not be empty"},
		{name: "long name", p: Policy{Name: strings.Repeat("n", 1025)}, want: "policy name must not exceed 1024 bytes"},
		{name: "name of other bytes", p: Policy{Name: "\xff"}, want: "policy name must be UTF-8"},
		{name: "long body", body: `{"pattern":"` + strings.Repeat("x", maxBody) + `"}`, want: "policy must not exceed 65536 bytes, has 65550"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.p.Definition = newDefinition(map[string]any{"message-ttl": int64(1)})
			_, err := parse(User, tc.p)
			if tc.body != "" {
				_, err = rabbitMQ.Parse(User, "p", []byte(tc.body))
			}
			if want := "Validation failed\n\n" + tc.want + "\n"; err == nil || err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
		})
	}
}

func TestTooManyKeys(t *testing.T) {
	d := Definition{}
	for i := range maxKeys + 1 {
		d = append(d, Entry{Key: strings.Repeat("k", i+1)})
	}
	_, err := parse(User, Policy{Name: "p", Definition: d})
	if want := "Validation failed\n\ndefinition must not exceed 256 keys, has 257\n"; err == nil || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestAccepted(t *testing.T) {
	for _, tc := range []struct {
		kind       Kind
		definition string
	}{
		{definition: `{"message-ttl":0}`},
		{definition: `{"message-ttl":-0}`},
		{definition: `{"message-ttl":9223372036854775807}`},
		{definition: `{"expires":1}`},
		{definition: `{"delivery-limit":-1}`},
		{definition: `{"dead-letter-exchange":"","dead-letter-routing-key":""}`},
		{definition: `{"alternate-exchange":""}`},
		{definition: `{"max-age":"1Y"}`},
		{definition: `{"max-age":"99999999999999999999D"}`},
		{definition: `{"ha-mode":"nodes","ha-params":["a@b"],"ha-sync-mode":"automatic"}`},
		{definition: `{"queue-master-locator":"min-masters","queue-mode":"lazy","queue-version":2}`},
		{definition: `{"queue-leader-locator":"balanced"}`},
		{definition: `{"delayed-retry-type":"failed","delayed-retry-min":1000,"delayed-retry-max":30000}`},
		{definition: `{"delayed-retry-type":"disabled","delayed-retry-multiplier":1.5}`},
		{definition: `{"delayed-retry-min":5,"delayed-retry-max":5}`},
		{definition: `{"stream-filter-size-bytes":255,"stream-max-segment-size-bytes":3000000000,"initial-cluster-size":0}`},
		{kind: Operator, definition: `{"expires":1,"message-ttl":0,"max-length":0,"max-length-bytes":0,"max-in-memory-length":0,"max-in-memory-bytes":0}`},
		{kind: Operator, definition: `{"delivery-limit":0,"overflow":"reject-publish","queue-version":1,"target-group-size":3,"member-placement-tag":"a"}`},
		{kind: Operator, definition: `{"expiry-strategy":"deadline"}`},
	} {
		_, err := rabbitMQ.Parse(tc.kind, "p", []byte(`{"pattern":"","definition":`+tc.definition+`}`))
		if err != nil {
			t.Errorf("%s %s: %v", tc.kind, tc.definition, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	p, err := rabbitMQ.Parse(User, "p", []byte(`{"vhost":"other","name":"other","foo":[1],"pattern":"é",`+validTTL+`}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"p","pattern":"é","apply-to":"all","definition":{"message-ttl":1},"priority":0}`
	if got, err := p.MarshalJSON(); err != nil || string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for text, want := range map[string]int{"-5": -5, "1.0": 1, "1e3": 1000, "9223372036854775807": math.MaxInt64} {
		p, err := rabbitMQ.Parse(User, "p", []byte(`{"pattern":"",`+validTTL+`,"priority":`+text+`}`))
		if err != nil || p.Priority != want {
			t.Errorf("priority %s: got %v, %v, want %d", text, p, err, want)
		}
	}
}

func TestExpiryStrategies(t *testing.T) {
	known := []string{"deadline", "rabbitmq"}
	r := NewRules(declared(), func() []string { return known })
	set := func(v string) error {
		_, err := r.Parse(User, "p", []byte(`{"pattern":"","definition":{"expiry-strategy":`+v+`}}`))
		return err
	}
	for v, want := range map[string]string{
		`"rabbitmq"`: "",
		`"wasm/a"`:   "unknown expiry strategy 'wasm/a', expected one of deadline, rabbitmq",
		`""`:         "unknown expiry strategy '', expected one of deadline, rabbitmq",
		`1`:          "1 is not a valid expiry strategy, expected one of deadline, rabbitmq",
	} {
		err := set(v)
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", v, err)
			}
			continue
		}
		if err == nil || err.Error() != "Validation failed\n\n"+want+"\n" {
			t.Errorf("%s: got %q, want %q", v, err, want)
		}
	}
	known = append(known, "wasm/a")
	if err := set(`"wasm/a"`); err != nil {
		t.Errorf("a strategy that came later: %v", err)
	}
}

// A policy that was set while a plugin or a strategy was loaded survives its removal.
func TestRestore(t *testing.T) {
	r := NewRules(declared(), func() []string { return []string{"deadline"} })
	body := `{"name":"p","pattern":"^a","apply-to":"queues","definition":{"expiry-strategy":"wasm/gone","gone":{"a":[1]},"message-ttl":7},"priority":3}`
	p, err := r.Restore(User, "p", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := p.MarshalJSON(); string(got) != body {
		t.Errorf("got %s, want %s", got, body)
	}
	applied := (*Set)(nil).With(User, p).Match(Subject{Name: "a", Type: Quorum})
	if ttl, _ := applied.Setting("message-ttl", int64(9), true, Quorum); ttl != int64(7) {
		t.Errorf("TTL is %v, want 7", ttl)
	}
	if _, err := r.Restore(User, "p", []byte(`{"pattern":"(","definition":{"a":1}}`)); err == nil {
		t.Error("a pattern that does not compile is restored")
	}
}

// parse checks a policy made from values. An empty ApplyTo means the default.
func parse(kind Kind, p Policy) (*Policy, error) {
	if p.ApplyTo == "" {
		p.ApplyTo = allObjects
	}
	body, err := p.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return rabbitMQ.Parse(kind, p.Name, body)
}

func mustParse(t *testing.T, r *Rules, kind Kind, body string) *Policy {
	t.Helper()
	p, err := r.Parse(kind, "p", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
