package definitions

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"net/url"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// Queue returns the definition of a queue.
func Queue(cfg *queue.Config) jsonobj.Object {
	return object{
		{"name", cfg.Name},
		{"vhost", cfg.VHost},
		{"durable", cfg.Durable},
		{"auto_delete", cfg.AutoDelete},
		{"arguments", jsonobj.OfArgs(cfg.Args)},
	}
}

// ErrNoQueueName refuses a queue without a name. Over AMQP, the broker would choose a name.
var ErrNoQueueName = jsonobj.Errorf("the name of a queue is empty")

// ReadQueue reads the declaration of a queue.
func ReadQueue(r *reader, name string) vhost.QueueDeclare {
	r.Fail(jsonobj.CheckName("name", name))
	return vhost.QueueDeclare{Name: name, Durable: r.Flag("durable"), AutoDelete: r.Flag("auto_delete"), Args: r.Table("arguments")}
}

// Exchange returns the definition of an exchange.
func Exchange(vhost string, x vhost.Exchange) jsonobj.Object {
	return object{
		{"name", x.Name},
		{"vhost", vhost},
		{"type", x.Type},
		{"durable", x.Durable},
		{"auto_delete", x.AutoDelete},
		{"internal", x.Internal},
		{"arguments", jsonobj.OfTable(x.Args)},
	}
}

// ReadExchange reads the declaration of an exchange. Its default type is direct.
func ReadExchange(r *reader, name string) vhost.Exchange {
	r.Fail(jsonobj.CheckName("name", name))
	return vhost.Exchange{
		Name: name, Type: cmp.Or(r.Name("type"), "direct"), Durable: r.Flag("durable"), AutoDelete: r.Flag("auto_delete"),
		Internal: r.Flag("internal"), Args: r.Table("arguments"),
	}
}

// VHostBinding is a binding of a vhost.
type VHostBinding struct {
	VHost string
	vhost.Binding
}

// BindingsOf adds the vhost to each of its bindings.
func BindingsOf(v *vhost.VHost, bs []vhost.Binding) []VHostBinding {
	all := make([]VHostBinding, len(bs))
	for i := range bs {
		all[i] = VHostBinding{v.Name(), bs[i]}
	}
	return all
}

// Binding returns the definition of a binding, with capacity for one more member.
func Binding(b VHostBinding) jsonobj.Object {
	o := object{
		{"source", b.Source},
		{"vhost", b.VHost},
		{"destination", b.Destination},
		{"destination_type", b.destinationType()},
		{"routing_key", b.Key},
		{"arguments", jsonobj.OfTable(b.Args)},
		{},
	}
	return o[:len(o)-1]
}

func (b *VHostBinding) destinationType() string {
	if b.ToExchange {
		return "exchange"
	}
	return "queue"
}

// SortBindings sorts bindings into a fixed order.
func SortBindings(all []VHostBinding) []VHostBinding {
	slices.SortFunc(all, func(a, b VHostBinding) int {
		first := cmp.Or(
			cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Destination, b.Destination),
			cmp.Compare(b.destinationType(), a.destinationType()), // queues first
			cmp.Compare(a.Key, b.Key),
		)
		if first != 0 {
			return first
		}
		return cmp.Compare(a.PropertiesKey(), b.PropertiesKey())
	})
	return all
}

// PropertiesKey distinguishes a binding from others with the same source and destination: by its routing key and, if there are any, a hash
// of its arguments.
func (b *VHostBinding) PropertiesKey() string {
	key := escapeKey(b.Key)
	switch {
	case len(b.Args) > 0:
		return key + "~" + hashOf(b.Args)
	case key == "":
		return "~"
	}
	return key
}

// PropertiesKeyOf returns the PropertiesKey that a client means by text. Clients may leave the routing key in it unescaped, as RabbitMQ
// allows, unless the key has a "~", "+" or "%".
func PropertiesKeyOf(text string) string {
	key, _, _ := strings.Cut(text, "~")
	return escapeKey(unescapeKey(key)) + text[len(key):]
}

func escapeKey(key string) string {
	return strings.ReplaceAll(url.QueryEscape(key), "~", "%7E")
}

// unescapeKey undoes escapeKey. It keeps a "%" that begins no escape sequence.
func unescapeKey(text string) string {
	key := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '+':
			key = append(key, ' ')
		case '%':
			if b, err := hex.DecodeString(text[i+1 : min(i+3, len(text))]); err == nil && len(b) == 1 {
				key, i = append(key, b[0]), i+2
				continue
			}
			key = append(key, '%')
		default:
			key = append(key, text[i])
		}
	}
	return string(key)
}

// hashOf returns a short hash of arguments, which does not depend on their order.
func hashOf(args amqp.Table) string {
	sorted := slices.SortedStableFunc(slices.Values(args), func(a, b amqp.Field) int { return strings.Compare(a.Key, b.Key) })
	sum := crc32.ChecksumIEEE(amqp.AppendTable(nil, sorted))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}
