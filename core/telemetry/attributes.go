package telemetry

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// Schema names the version of OpenTelemetry's semantic conventions that the attributes follow: for messaging, those for RabbitMQ.
const Schema = "https://opentelemetry.io/schemas/1.43.0"

// Attributes of OpenTelemetry's semantic conventions.
const (
	systemKey        = attribute.Key("messaging.system")
	operationKey     = attribute.Key("messaging.operation.name")
	operationTypeKey = attribute.Key("messaging.operation.type")
	destinationKey   = attribute.Key("messaging.destination.name")
	anonymousKey     = attribute.Key("messaging.destination.anonymous")
	errorTypeKey     = attribute.Key("error.type")
	routingKeyKey    = attribute.Key("messaging.rabbitmq.destination.routing_key")
	messageIDKey     = attribute.Key("messaging.message.id")
	conversationKey  = attribute.Key("messaging.message.conversation_id")
	bodySizeKey      = attribute.Key("messaging.message.body.size")
	clientKey        = attribute.Key("messaging.client.id")
)

// Our own attributes.
const (
	vhostKey = attribute.Key("curfew.vhost")
	queueKey = attribute.Key("curfew.queue")

	routedKey      = attribute.Key("curfew.publish.queues")
	consumerKey    = attribute.Key("curfew.delivery.consumer_tag")
	redeliveredKey = attribute.Key("curfew.delivery.redelivered")

	strategyKey = attribute.Key("curfew.expiry.strategy")
	deadlineKey = attribute.Key("curfew.expiry.deadline")
	latenessKey = attribute.Key("curfew.expiry.lateness_ms")

	reasonKey   = attribute.Key("curfew.dead_letter.reason")
	outcomeKey  = attribute.Key("curfew.dead_letter.outcome")
	exchangeKey = attribute.Key("curfew.dead_letter.exchange")
	newKeyKey   = attribute.Key("curfew.dead_letter.routing_key")

	scheduleKey     = attribute.Key("curfew.schedule")
	heldKey         = attribute.Key("curfew.hold.until")
	holdLatenessKey = attribute.Key("curfew.hold.lateness_ms")

	policyKey    = attribute.Key("curfew.policy.name")
	digestKey    = attribute.Key("curfew.policy.digest")
	hookKey      = attribute.Key("curfew.policy.hook")
	fuelKey      = attribute.Key("curfew.policy.fuel")
	batchKey     = attribute.Key("curfew.policy.batch")
	verdictKey   = attribute.Key("curfew.policy.verdict")
	policyHold   = attribute.Key("curfew.policy.hold") // until when
	policyPrefix = "curfew.policy.attribute."          // of attributes that policies add

	idleKey         = attribute.Key("curfew.queue.idle_ms")
	messagesKey     = attribute.Key("curfew.queue.messages")
	deadLetteredKey = attribute.Key("curfew.queue.dead_lettered")

	bytesKey             = attribute.Key("curfew.recovery.bytes")
	entriesKey           = attribute.Key("curfew.recovery.entries")
	recoveredMessagesKey = attribute.Key("curfew.recovery.messages")
	recoveredQueuesKey   = attribute.Key("curfew.recovery.queues")
)

// valid replaces invalid UTF-8 in a client's text: exporters refuse a whole batch for one bad byte.
func valid(s string) string { return strings.ToValidUTF8(s, "�") }

func text(k attribute.Key, s string) attribute.KeyValue { return k.String(valid(s)) }
