package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
)

// A collector that answered a request with megabytes had them written to the log, for spans and for metrics.
func TestBoundedErrors(t *testing.T) {
	answer := errors.New("400 Bad Request (body: " + strings.Repeat("ö", 1<<20) + ")")
	for name, say := range map[string]func(log *slog.Logger){
		"spans": func(log *slog.Logger) { (&batches{log: log}).report(1, answer) },
		"metrics": func(log *slog.Logger) {
			e := &metricExporter{Exporter: &metricsDown{with: answer, until: time.Now().Add(time.Hour)}, log: log}
			if err := e.Export(t.Context(), nil); err != nil {
				t.Error(err)
			}
		},
		"the SDK": func(log *slog.Logger) {
			handleErrors(log)
			otel.Handle(answer)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			say(slog.New(slog.NewJSONHandler(&out, nil)))
			text := out.String()
			if len(text) > 1000 || !strings.Contains(text, "400 Bad Request (body: öö") || !strings.Contains(text, `ö…"`) {
				t.Errorf("%d bytes were logged: %.1000s", len(text), text)
			}
		})
	}
}
