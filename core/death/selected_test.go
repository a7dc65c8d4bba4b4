package death

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func raw(t table) amqp.RawTable { return amqp.AppendTable(nil, t)[4:] }

func TestSenderSelected(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers table
		cc, bcc []string
		err     string
	}{
		{"nothing", nil, nil, nil, ""},
		{"others", table{{Key: "cc", Value: "x"}, {Key: "Bcc", Value: "y"}}, nil, nil, ""},
		{"both", table{{Key: "BCC", Value: array{"b"}}, {Key: "CC", Value: array{"c1", "c2"}}}, []string{"c1", "c2"}, []string{"b"}, ""},
		{"empty", table{{Key: "CC", Value: array{}}}, []string{}, nil, ""},
		{"other elements do not count", table{{Key: "CC", Value: array{"a", int32(1), nil, []byte("x"), array{"y"}, "b"}}}, []string{"a", "b"}, nil, ""},
		{"twice, the first counts", table{{Key: "CC", Value: array{"a"}}, {Key: "CC", Value: "b"}}, []string{"a"}, nil, ""},
		{"a string", table{{Key: "CC", Value: "a"}}, nil, nil, `PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",longstr}`},
		{"void", table{{Key: "BCC", Value: nil}}, nil, nil, `PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"BCC",void}`},
		{"both wrong", table{{Key: "BCC", Value: true}, {Key: "CC", Value: table{}}}, nil, nil, `PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",table}`},
		{"one wrong", table{{Key: "CC", Value: array{"a"}}, {Key: "BCC", Value: int32(1)}}, nil, nil, `PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"BCC",signedint}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cc, bcc, err := SenderSelected(raw(c.headers))
			if c.err != "" {
				var e *amqp.Error
				if !errors.As(err, &e) || e.Code != amqp.ReplyPreconditionFailed || err.Error() != c.err || cc != nil || bcc != nil {
					t.Errorf("got %v, %v, %v; want %s", cc, bcc, err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(cc, c.cc) || !slices.Equal(bcc, c.bcc) {
				t.Errorf("got %q, %q, %v; want %q, %q", cc, bcc, err, c.cc, c.bcc)
			}
		})
	}
}

func TestSenderSelectedDoesNotAllocate(t *testing.T) {
	headers := raw(table{{Key: "a", Value: "1"}, {Key: "b", Value: int64(1)}})
	if n := testing.AllocsPerRun(100, func() { _, _, _ = SenderSelected(headers) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStripBCC(t *testing.T) {
	bcc := amqp.Field{Key: "BCC", Value: array{"b"}}
	for _, c := range []struct {
		name          string
		headers, want table
	}{
		{"no headers", nil, nil},
		{"none", table{{Key: "z", Value: "1"}, {Key: "a", Value: "1"}}, table{{Key: "z", Value: "1"}, {Key: "a", Value: "1"}}},
		{"first", table{bcc, {Key: "CC", Value: array{"c"}}}, table{{Key: "CC", Value: array{"c"}}}},
		{"last, twice", table{bcc, {Key: "z", Value: table{bcc}}, bcc}, table{{Key: "z", Value: table{bcc}}}},
		{"the table stays", table{bcc}, table{}},
	} {
		props := properties(c.headers, "10")
		idx, err := amqp.ScanProps(props)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := StripBCC([]byte("x"), props, idx), append([]byte("x"), properties(c.want, "10")...); !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", c.name, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		cc, bcc []string
		want    string
	}{
		{nil, nil, "m"},
		{[]string{"c", "d"}, nil, "m c d"},
		{nil, []string{"b"}, "m"},
		{[]string{"c"}, []string{"b", "b2"}, "m c"},
		{[]string{"x", "y"}, []string{"x"}, "m y x"},
		{[]string{"c"}, []string{"m"}, "c m"},
		{[]string{"m"}, []string{"m", "m"}, "m m"},
	} {
		got := Keys([][]byte{[]byte("before")}, []byte("m"), c.cc, c.bcc)
		if s := string(bytes.Join(got[1:], []byte(" "))); s != c.want {
			t.Errorf("CC %v, BCC %v: %s, want %s", c.cc, c.bcc, s, c.want)
		}
	}
}

func FuzzSenderSelected(f *testing.F) {
	f.Add(properties(table{{Key: "CC", Value: array{"a", int32(1)}}, {Key: "BCC", Value: array{"b"}}}, ""))
	f.Add(properties(table{{Key: "BCC", Value: "b"}}, "1"))
	f.Fuzz(func(t *testing.T, props []byte) {
		idx, err := amqp.ScanProps(props)
		if err != nil {
			t.Skip()
		}
		headers := idx.Headers(props)
		cc, bcc, err := SenderSelected(headers)
		if _, ok := headers.LookupRaw("BCC"); err == nil && ok != (bcc != nil) {
			t.Errorf("BCC there: %v, keys %q", ok, bcc)
		}
		if err == nil {
			Keys(nil, nil, cc, bcc)
		}
		out := StripBCC(nil, props, idx)
		after, err := amqp.ParseProperties(out)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := after.Headers.Lookup("BCC"); ok {
			t.Error("BCC is still there")
		}
	})
}

// Each BCC key was searched for in the list of all keys: a frame of keys took a second of its queue's turn when the message died.
func TestManyKeys(t *testing.T) {
	var cc, bcc []string
	for i := range 250_000 { // for which that would take minutes
		cc, bcc = append(cc, "c"+strconv.Itoa(i)), append(bcc, "b"+strconv.Itoa(i))
	}
	if got := Keys(nil, []byte("m"), cc, bcc); len(got) != 1+len(cc) {
		t.Errorf("got %d keys", len(got))
	}
}
