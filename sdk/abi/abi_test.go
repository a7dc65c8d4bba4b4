package abi

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tables are the cells of the tables' lines in README.md.
func tables(t *testing.T) [][]string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "| ") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

func has(rows [][]string, cells ...string) bool {
	return slices.ContainsFunc(rows, func(row []string) bool {
		return len(row) > len(cells) && slices.Equal(row[:len(cells)], cells)
	})
}

func code(s string) string { return "`" + s + "`" }

func TestREADMEHasAllFunctions(t *testing.T) {
	rows := tables(t)
	for _, f := range Exports() {
		if !has(rows, code(f.Name), code(f.Signature.String())) {
			t.Errorf("no row for the export %s, a %s", f.Name, f.Signature)
		}
	}
	for _, f := range Imports() {
		grant := ""
		if f.Grant != Always {
			grant = code(string(f.Grant))
		}
		if !has(rows, code(f.Name), code(f.Signature.String()), grant) {
			t.Errorf("no row for the import %s, a %s with the grant %q", f.Name, f.Signature, f.Grant)
		}
	}
}

func TestREADMEHasTheLayout(t *testing.T) {
	rows := tables(t)
	for typ, offsets := range map[string][]int{
		"i64": {
			RecordEnqueued, RecordExpiration, RecordQueueTTL, RecordDeadline, RecordState,
			VerdictUntil, VerdictState,
		},
		"u32": {
			RecordSizeOf, RecordDeliveries, RecordDeaths, RecordQueue,
			VerdictAction, VerdictFlags, VerdictStrings,
		},
		"u16": {VerdictExchangeLen, VerdictKeyLen},
		"u8":  {RecordPriority, RecordFlags, RecordWhy},
		"":    {RecordReserved},
	} {
		for _, at := range offsets {
			if !has(rows, strconv.Itoa(at), typ) {
				t.Errorf("no row for what is at %d, a %q", at, typ)
			}
		}
	}
	for action, name := range map[int]string{
		Keep: "keep", Expire: "expire", DeadLetter: "dead-letter", Requeue: "requeue", Drop: "drop", NoOpinion: "no opinion",
	} {
		if !has(rows, strconv.Itoa(action), name) {
			t.Errorf("no row for the action %d, %s", action, name)
		}
	}
}

// Hooks are numbered in the order in which they are exported.
func TestHooksAreExports(t *testing.T) {
	exports := Exports()
	for h := range Hooks {
		if got := exports[len(exports)-int(Hooks)+int(h)].Name; got != h.String() {
			t.Errorf("hook %d: got the export %s, want %s", h, got, h)
		}
	}
}

func TestSignatureAsText(t *testing.T) {
	for _, tc := range []struct {
		params, results, want string
	}{
		{"", "", "(func)"},
		{"48", "", "(func (param i32 i64))"},
		{"", "8", "(func (result i64))"},
		{"4", "4", "(func (param i32) (result i32))"},
	} {
		if got := (Signature{values(tc.params), values(tc.results)}).String(); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}
