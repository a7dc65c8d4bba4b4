package vhost

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
)

// maxName is what a short string holds [AMQP 4.2.5.3].
const maxName = 255

// reservedPrefix begins the names that clients may use but not create [AMQP: exchange.declare, rule reserved].
const reservedPrefix = "amq."

var crlf = strings.NewReplacer("\r", "", "\n", "")

// Sanitise takes the line breaks out of a name, as RabbitMQ does: names end up in logs.
func Sanitise(name string) string {
	if strings.ContainsAny(name, "\r\n") {
		return crlf.Replace(name)
	}
	return name
}

// checkNew refuses a name that nothing new may have; what says "queue" or "exchange".
func checkNew(what, name string) error {
	if strings.HasPrefix(name, reservedPrefix) {
		return refuse(AccessRefused, "%s name '%s' contains reserved prefix 'amq.*'", what, name)
	}
	return checkLength(what, name)
}

func checkLength(what, name string) error {
	if len(name) > maxName {
		return refuse(Precondition, "%s name of %d bytes: at most %d are allowed", what, len(name), maxName)
	}
	return nil
}

// serverName makes up a queue name that nobody can guess. Clients may choose how it begins; whether they may begin it like
// that is checked with their other arguments.
func serverName(args amqp.Table) string {
	prefix, _ := args.Lookup(argNamePrefix)
	begin, ok := prefix.(string)
	if !ok {
		begin = "amq.gen"
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return begin + "-" + base64.RawURLEncoding.EncodeToString(random[:])
}
