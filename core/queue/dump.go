package queue

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Dump writes the operations of a journal entry as text, a line for each, up to the first
// malformed one. It stops at a definition, and returns it with the bytes behind it:
// definitions begin with 0, which is no operation.
func Dump(w io.Writer, ops []byte) (rest []byte, err error) {
	in := reader{b: ops}
	for len(in.b) > 0 && in.b[0] != 0 && !in.bad {
		kind, id := in.u8(), in.u64()
		text := in.describe(kind)
		if in.bad || text == "" {
			return nil, fmt.Errorf("%w: kind %d", errOps, kind)
		}
		if _, err := fmt.Fprintf(w, "queue %d: %s\n", id, text); err != nil {
			return nil, err
		}
	}
	if in.bad {
		return nil, errOps
	}
	return in.b, nil
}

// describe reads an operation and returns its text, "" for an unknown kind.
func (r *reader) describe(kind byte) string {
	switch kind {
	case opEnqueued:
		return r.describeEnqueued("")
	case opEnqueuedAlike:
		return r.describeEnqueued(", properties as before")
	case opSettled:
		return "settle " + r.describeRefs(r.u32())
	case opReturned:
		return fmt.Sprintf("return %v, returns %d", Ref(r.u64()), r.u16())
	case opDeadlineSet:
		return fmt.Sprintf("renew %v, deadline %s, state %d", Ref(r.u64()), stamp(r.at()), int64(r.u64()))
	case opDeadlineSetBy:
		return fmt.Sprintf("renew %v, deadline %s, state %d, %s", Ref(r.u64()), stamp(r.at()), int64(r.u64()), describeDigest(r.u64()))
	case opPurged:
		return "purge " + r.describeRuns(r.u32())
	case opDeadLettering:
		return fmt.Sprintf("discard %v, %v", Ref(r.u64()), reasonOf(r.u8()))
	case opAsks:
		return fmt.Sprintf("ask about %v at the head", Ref(r.u64()))
	case opHeld:
		return fmt.Sprintf("hold %v until %s, flags %d, nacks %d", Ref(r.u64()), stamp(r.at()), r.u8(), r.u16())
	case opDelivered:
		return fmt.Sprintf("handed out level %d up to %d", r.u8(), r.u64())
	}
	return ""
}

func (r *reader) describeEnqueued(properties string) string {
	ref, deadline, entered := Ref(r.u64()), r.at(), r.at()
	flags, returns := slotFlags(r.u8()), r.u16()
	size := r.u32()
	record := reader{b: r.take(int(size))}
	if flags&hasState != 0 {
		record.u64()
	}
	policy := ""
	if flags&hasDigest != 0 {
		policy = ", " + describeDigest(record.u64())
	}
	record.u32()
	exchange := record.take(int(record.u8()))
	key := record.take(int(record.u8()))
	if r.bad || record.bad {
		r.bad = true
		return ""
	}
	return fmt.Sprintf("enqueue %v, %d bytes, exchange %q, key %q, entered %s, deadline %s, returns %d%s%s%s",
		ref, size, exchange, key, stamp(entered), stamp(deadline), returns, policy, flags.describe(), properties)
}

func describeDigest(digest uint64) string {
	if (strategyData{digest: digest}).isUndecided() {
		return "undecided"
	}
	return fmt.Sprintf("policy %016x", digest)
}

func (r *reader) describeRefs(n uint32) string {
	refs := reader{b: r.refs(n)}
	if r.bad {
		return ""
	}
	words := make([]string, 0, n)
	for len(refs.b) > 0 {
		words = append(words, Ref(refs.u64()).String())
	}
	return strings.Join(words, " ")
}

func (r *reader) describeRuns(n uint32) string {
	runs := reader{b: r.take(int(n) * runSize)}
	if r.bad {
		return ""
	}
	words := make([]string, 0, n)
	for len(runs.b) > 0 {
		first, count := Ref(runs.u64()), runs.u32()
		words = append(words, fmt.Sprintf("%d from %v", count, first))
	}
	return strings.Join(words, ", ")
}

// String returns the level, unless it is 0, and the sequence number in it.
func (r Ref) String() string {
	if r.level() == 0 {
		return strconv.FormatUint(r.seq(), 10)
	}
	return fmt.Sprintf("%d/%d", r.level(), r.seq())
}

func (f slotFlags) describe() string {
	var b strings.Builder
	for _, name := range []struct {
		flag slotFlags
		name string
	}{{redelivered, "redelivered"}, {hasDeathHistory, "dead-lettered"}, {hasState, "state"}, {hasBCC, "bcc"}, {traced, "traced"}, {askHead, "ask at head"}} {
		if f&name.flag != 0 {
			b.WriteString(", " + name.name)
		}
	}
	return b.String()
}

func stamp(at hook.Instant) string {
	if at == 0 {
		return "none"
	}
	return at.Time().UTC().Format(time.RFC3339Nano)
}
