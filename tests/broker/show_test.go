package broker

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// show prints a message: its body, where it came from, its properties, then a line for each header.
func (s *session) show(d amqp091.Delivery, err error, out *bytes.Buffer) error {
	if err != nil {
		return err
	}
	s.shown[body(d.Body)], s.latest = d.DeliveryTag, d.DeliveryTag
	key := secret.ReplaceAllString(d.RoutingKey, "$1*")
	fmt.Fprintf(out, "%s exchange=%s key=%s%s\n", body(d.Body), quoted(d.Exchange), key, properties(d))
	for _, key := range slices.Sorted(maps.Keys(d.Headers)) {
		showHeader(key, d.Headers, out)
	}
	return nil
}

// secret is the name of somebody's direct reply-to, which is different each time.
var secret = regexp.MustCompile(`^(amq\.rabbitmq\.reply-to\.)[\w+/]+=*\.[\w+/]{22}==$`)

func body(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("(%d bytes)", len(b))
	}
	return quoted(string(b))
}

// quoted is s, or what stands for an empty word.
func quoted(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

func properties(d amqp091.Delivery) string {
	var b strings.Builder
	if d.Redelivered {
		b.WriteString(" redelivered")
	}
	if d.DeliveryMode == amqp091.Persistent {
		b.WriteString(" persistent")
	}
	for _, p := range []argument{
		{"expiration", d.Expiration},
		{"reply-to", d.ReplyTo},
		{"user-id", d.UserId},
		{"message-id", d.MessageId},
		{"correlation-id", d.CorrelationId},
	} {
		if p.value != "" {
			b.WriteString(" " + p.key + "=" + p.value)
		}
	}
	if d.Priority > 0 {
		fmt.Fprintf(&b, " priority=%d", d.Priority)
	}
	return b.String()
}

func showHeader(key string, headers amqp091.Table, out *bytes.Buffer) {
	what, isDeath := strings.CutSuffix(key, "-death-reason")
	_, together := headers[what+"-death-queue"]
	deaths, isList := headers[key].([]any)
	switch {
	case strings.HasSuffix(key, "-death-queue"), strings.HasSuffix(key, "-death-exchange"):
	case isDeath && together:
		from, _ := headers[what+"-death-exchange"].(string)
		fmt.Fprintf(out, "  %s-death: %v in %v, came from exchange %s\n", what, headers[key], headers[what+"-death-queue"], quoted(from))
	case key == "x-death" && isList:
		for _, d := range deaths {
			fmt.Fprintf(out, "  x-death: %s\n", death(d.(amqp091.Table)))
		}
	default:
		fmt.Fprintf(out, "  %s: %v\n", key, headers[key])
	}
}

// death shows an entry of x-death. Its time is shown only when it is not about now.
func death(t amqp091.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v in %v, %v×, came from exchange %v with keys %v", t["reason"], t["queue"], t["count"], quoted(t["exchange"].(string)), t["routing-keys"])
	if e, ok := t["original-expiration"]; ok {
		fmt.Fprintf(&b, ", expiration was %v", e)
	}
	when, _ := t["time"].(time.Time)
	if age := time.Since(when); age < -2*time.Second || age > time.Minute {
		fmt.Fprintf(&b, ", at %v", t["time"])
	}
	return b.String()
}
