package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
)

// A collector that answered a request with megabytes had them written to the log.
func TestBoundedErrors(t *testing.T) {
	var out bytes.Buffer
	handleErrors(slog.New(slog.NewJSONHandler(&out, nil)))
	otel.Handle(errors.New("400 Bad Request (body: " + strings.Repeat("ö", 1<<20) + ")"))
	if text := out.String(); len(text) > 1000 || !strings.Contains(text, "400 Bad Request (body: öö") || !strings.Contains(text, `ö…"`) {
		t.Errorf("%d bytes were logged: %.1000s", len(text), text)
	}
}
