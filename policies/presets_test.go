package policies

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// definitions is what presets have of a definitions file.
type definitions struct {
	Policies   []json.RawMessage `json:"policies"`
	Parameters []struct {
		VHost     string          `json:"vhost"`
		Component string          `json:"component"`
		Name      string          `json:"name"`
		Value     json.RawMessage `json:"value"`
	} `json:"parameters"`
	Exchanges []json.RawMessage `json:"exchanges"`
	Queues    []json.RawMessage `json:"queues"`
	Bindings  []json.RawMessage `json:"bindings"`
}

func loadPreset(t *testing.T, file string) *Set {
	t.Helper()
	f, err := os.Open(filepath.Join("presets", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var d definitions
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	var s *Set
	for _, object := range d.Policies {
		s = s.With(User, presetPolicy(t, object))
	}
	for _, parameter := range d.Parameters {
		p, err := rabbitMQ.Parse(Operator, parameter.Name, parameter.Value)
		if err != nil || parameter.Component != Operator.String() || parameter.VHost != "/" {
			t.Fatalf("%s %s in %s: %v", parameter.Component, parameter.Name, parameter.VHost, err)
		}
		s = s.With(Operator, p)
	}
	return s
}

func presetPolicy(t *testing.T, object []byte) *Policy {
	t.Helper()
	var head struct{ Name, VHost string }
	if err := json.Unmarshal(object, &head); err != nil {
		t.Fatal(err)
	}
	p, err := rabbitMQ.Parse(User, head.Name, object)
	if err != nil || head.VHost != "/" {
		t.Fatalf("%s in %s: %v", head.Name, head.VHost, err)
	}
	return p
}

func TestPresets(t *testing.T) {
	for _, tc := range []struct {
		file    string
		subject Subject
		key     string
		arg     any
		want    any
	}{
		{file: "ttl-for-all-queues.json", subject: Subject{"any", Classic}, key: "message-ttl", want: int64(86_400_000)},
		{file: "ttl-for-all-queues.json", subject: Subject{"any", Quorum}, key: "message-ttl", arg: int32(5000), want: int32(5000)},
		{file: "ttl-for-all-queues.json", subject: Subject{"any", Exchange}, key: "message-ttl"},

		{file: "retry-with-back-off.json", subject: Subject{"work", Classic}, key: "dead-letter-exchange", want: "retry"},
		{file: "retry-with-back-off.json", subject: Subject{"work", Quorum}, key: "dead-letter-exchange", want: "retry"},
		{file: "retry-with-back-off.json", subject: Subject{"work", Classic}, key: "message-ttl"},
		{file: "retry-with-back-off.json", subject: Subject{"workers", Classic}, key: "dead-letter-exchange"},
		{file: "retry-with-back-off.json", subject: Subject{"retry", Exchange}, key: "alternate-exchange", want: "retry.first"},
		{file: "retry-with-back-off.json", subject: Subject{"retry.first", Exchange}, key: "alternate-exchange"},
		{file: "retry-with-back-off.json", subject: Subject{"retry.10s", Classic}, key: "message-ttl", want: int64(10_000)},
		{file: "retry-with-back-off.json", subject: Subject{"retry.10s", Classic}, key: "dead-letter-routing-key", want: "retry-2"},
		{file: "retry-with-back-off.json", subject: Subject{"retry.1m", Classic}, key: "message-ttl", want: int64(60_000)},
		{file: "retry-with-back-off.json", subject: Subject{"retry.1m", Classic}, key: "dead-letter-exchange", want: "work"},
		{file: "retry-with-back-off.json", subject: Subject{"retry.10m", Classic}, key: "message-ttl", want: int64(600_000)},
		{file: "retry-with-back-off.json", subject: Subject{"retry.10m", Classic}, key: "dead-letter-routing-key", want: "retry-4"},
		{file: "retry-with-back-off.json", subject: Subject{"retry.failed", Classic}, key: "message-ttl"},

		{file: "reply-queue-expiry.json", subject: Subject{"amq.gen-JzTY20BRgKO-HjmUJj0wLg", Classic}, key: "expires", want: int64(300_000)},
		{file: "reply-queue-expiry.json", subject: Subject{"reply.17", Classic}, key: "expires", arg: int32(1000), want: int32(1000)},
		{file: "reply-queue-expiry.json", subject: Subject{"rpc.reply-17", Classic}, key: "message-ttl", want: int64(60_000)},
		{file: "reply-queue-expiry.json", subject: Subject{"replies", Classic}, key: "expires"},

		{file: "operator-ceilings.json", subject: Subject{"any", Classic}, key: "max-length", arg: int64(5_000_000), want: int64(1_000_000)},
		{file: "operator-ceilings.json", subject: Subject{"any", Quorum}, key: "max-length-bytes", arg: int32(100), want: int32(100)},
		{file: "operator-ceilings.json", subject: Subject{"any", Classic}, key: "message-ttl", want: int64(604_800_000)},
		{file: "operator-ceilings.json", subject: Subject{"any", Stream}, key: "max-length-bytes"},
	} {
		t.Run(tc.file+" "+tc.subject.Name+" "+tc.key, func(t *testing.T) {
			applied := loadPreset(t, tc.file).Match(tc.subject)
			got, ok := applied.Setting(tc.key, tc.arg, tc.arg != nil, tc.subject.Type)
			if got != tc.want || ok != (tc.want != nil) {
				t.Errorf("got %#v, %t, want %#v", got, ok, tc.want)
			}
		})
	}
}

func TestPresetsAreDocumented(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("presets", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no presets: %v", err)
	}
	page, err := os.ReadFile(filepath.Join("presets", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(string(page), "\n## "+filepath.Base(file)+"\n") {
			t.Errorf("%s has no section in presets/README.md", file)
		}
		loadPreset(t, filepath.Base(file))
	}
}
