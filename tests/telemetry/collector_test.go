package telemetry

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/tests/process"
)

// collector takes spans as an OpenTelemetry collector does, over gRPC or HTTP, and keeps them.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string

	mu       sync.Mutex // guards what follows
	spans    []*span
	resource map[string]string
	headers  http.Header // of the last request over HTTP
	refusing bool        // answers are errors that are not worth a retry; HTTP alone
}

// span is a span as the collector got it.
type span struct {
	*tracepb.Span
	trace, id, parent string // hexadecimal digits
	attributes        map[string]string
	scope             string
	resourceSchema    string
	schema            string
}

// listenGRPC starts a collector that speaks gRPC.
func listenGRPC(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.address = serveGRPC(t, func(s *grpc.Server) { collectorpb.RegisterTraceServiceServer(s, c) })
	return c
}

// serveGRPC serves what register registers until the test ends, and returns the address.
func serveGRPC(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := grpc.NewServer()
	register(s)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		must(t, <-ended)
	})
	return ln.Addr().String()
}

// listenHTTP starts one that speaks HTTP.
func listenHTTP(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	s := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(s.Close)
	c.address = s.URL
	return c
}

// Export implements the service.
func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.take(r)
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func (c *collector) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "for "+r.URL.Path, http.StatusNotFound)
		return
	}
	c.mu.Lock()
	refusing := c.refusing
	c.headers = r.Header
	c.mu.Unlock()
	if refusing {
		http.Error(w, "no more today", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(r.Body)
	var in collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.take(&in)
	out, _ := proto.Marshal(&collectorpb.ExportTraceServiceResponse{}) // which is empty
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out) // the broker finds out
}

func (c *collector) refuse(refusing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusing = refusing
}

func (c *collector) take(r *collectorpb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		c.resource = readable(of.GetResource().GetAttributes())
		for _, by := range of.GetScopeSpans() {
			for _, s := range by.GetSpans() {
				c.spans = append(c.spans, &span{
					Span: s, trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
					parent: hex.EncodeToString(s.GetParentSpanId()), attributes: readable(s.GetAttributes()), scope: by.GetScope().GetName(),
					resourceSchema: of.GetSchemaUrl(), schema: by.GetSchemaUrl(),
				})
			}
		}
	}
}

func readable(as []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range as {
		m[a.GetKey()] = text(a.GetValue())
	}
	return m
}

func text(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonpb.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *commonpb.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	}
	return v.String()
}

// find returns the spans for which so is true, in the order of their beginnings.
func (c *collector) find(so func(*span) bool) []*span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*span
	for _, s := range c.spans {
		if so(s) {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b *span) int { return int(int64(a.GetStartTimeUnixNano()) - int64(b.GetStartTimeUnixNano())) })
	return found
}

// await waits for spans of these names, all in one trace, and returns them in the order of the names. Others may be there,
// too.
func (c *collector) await(t *testing.T, trace string, names ...string) []*span {
	t.Helper()
	var found []*span
	complete := process.Poll(func() bool {
		found = found[:0]
		all := c.find(func(s *span) bool { return s.trace == trace })
		for _, name := range names {
			i := slices.IndexFunc(all, func(s *span) bool { return s.GetName() == name && !slices.Contains(found, s) })
			if i < 0 {
				return false
			}
			found = append(found, all[i])
		}
		return true
	})
	if !complete {
		t.Fatalf("in trace %s, the collector has %s; want %q", trace, c.names(trace), names)
	}
	return found
}

// awaitNamed waits for one span of a name in any trace.
func (c *collector) awaitNamed(t *testing.T, name string) *span {
	t.Helper()
	var found []*span
	if !process.Poll(func() bool {
		found = c.find(func(s *span) bool { return s.GetName() == name })
		return len(found) > 0
	}) {
		t.Fatalf("the collector has no span %q", name)
	}
	return found[0]
}

// names are the names of the spans of a trace.
func (c *collector) names(trace string) string {
	var names []string
	for _, s := range c.find(func(s *span) bool { return s.trace == trace }) {
		names = append(names, s.GetName())
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// has checks attributes: want is "name=value" by the item.
func (s *span) has(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		name, value, _ := strings.Cut(w, "=")
		if got, ok := s.attributes[name]; !ok || got != value {
			t.Errorf("%s: %s is %q (there: %t), want %q", s.GetName(), name, got, ok, value)
		}
	}
}

// follows checks that a span is a child of the context in a message, and not linked to it, too.
func (s *span) follows(t *testing.T, m *origin) {
	t.Helper()
	if s.trace != m.trace || s.parent != m.span {
		t.Errorf("%s: in trace %s, child of %s; want %s, %s", s.GetName(), s.trace, s.parent, m.trace, m.span)
	}
	if links := s.GetLinks(); len(links) != 0 {
		t.Errorf("%s: its links are %v", s.GetName(), links)
	}
}

// links checks that a span is linked to the context in a message.
func (s *span) links(t *testing.T, m *origin) {
	t.Helper()
	links := s.GetLinks()
	if len(links) != 1 || hex.EncodeToString(links[0].GetTraceId()) != m.trace || hex.EncodeToString(links[0].GetSpanId()) != m.span {
		t.Errorf("%s: its links are %v", s.GetName(), links)
	}
}

// events checks the names of a span's events, and that they lie in order and within it.
func (s *span) events(t *testing.T, want ...string) {
	t.Helper()
	var names []string
	before := s.GetStartTimeUnixNano()
	for _, e := range s.GetEvents() {
		names = append(names, e.GetName())
		if e.GetTimeUnixNano() < before || e.GetTimeUnixNano() > s.GetEndTimeUnixNano() {
			t.Errorf("%s: its event %s is out of order", s.GetName(), e.GetName())
		}
		before = e.GetTimeUnixNano()
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s: events %q, want %q", s.GetName(), names, want)
	}
}

func (s *span) duration() time.Duration {
	return time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano())
}
