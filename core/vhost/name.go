package vhost

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
)

// checkNew refuses a name that nothing new may have; what says "queue" or "exchange".
func checkNew(what, name string) error {
	if strings.HasPrefix(name, rabbit.ReservedPrefix) {
		return refuse(AccessRefused, "%s name '%s' contains reserved prefix 'amq.*'", what, name)
	}
	return checkLength(what, name)
}

func checkLength(what, name string) error {
	if len(name) > rabbit.MaxName {
		return refuse(Precondition, "%s name of %d bytes: at most %d are allowed", what, len(name), rabbit.MaxName)
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
