// Package rabbit has RabbitMQ's rules for names, and prints values the way RabbitMQ does, in Erlang's syntax. Error texts that
// clients compare with RabbitMQ's are made with it.
package rabbit

import "strings"

// MaxName is the maximum length of a name in bytes, that of a short string [AMQP 4.2.5.3].
const MaxName = 255

// ReservedPrefix begins the names that clients may use but not create [AMQP: exchange.declare, rule reserved].
const ReservedPrefix = "amq."

var lineBreaks = strings.NewReplacer("\r", "", "\n", "")

// Sanitise removes line breaks from a name, as RabbitMQ does, because names are written to logs.
func Sanitise(name string) string {
	if strings.ContainsAny(name, "\r\n") {
		return lineBreaks.Replace(name)
	}
	return name
}

// Product and Version identify the product whose protocol and API the broker has. Clients check them before they use later features.
const (
	Product = "RabbitMQ"
	Version = "3.13.7"
)
