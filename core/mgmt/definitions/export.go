package definitions

import (
	"bufio"
	"fmt"
	"io"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// Export writes the definitions of the whole broker, or of one vhost unless v is nil. It leaves out exclusive queues and their bindings,
// which end with their connection, and definitions that every vhost has. With modules it adds the broker's expiry policies, or those that
// the vhost's definitions name.
func (d *Definitions) Export(out io.Writer, v *vhost.VHost, modules bool) error {
	w := &writer{Writer: bufio.NewWriterSize(out, bufferSize)}
	for _, m := range []member{
		{"rabbit_version", d.RabbitMQ}, {"rabbitmq_version", d.RabbitMQ}, {"product_name", d.Product}, {"product_version", d.Version},
	} {
		w.name(m.Name())
		w.value(m[1])
	}
	if v == nil {
		section(w, "users", d.Store.Users().List(), User)
		section(w, "vhosts", d.Store.VHosts(), VHost)
		section(w, "permissions", d.Store.Users().Grants(), Permissions)
		section(w, "topic_permissions", d.Store.Users().TopicGrants(), TopicPermissions)
		section(w, "global_parameters", d.Store.GlobalParameters(), GlobalParameter)
		w.vhosts(d.Store.VHosts(), func(o object) object { return o })
	} else {
		w.vhosts([]*vhost.VHost{v}, func(o object) object { return o.Without("vhost") })
	}
	if modules {
		if all := d.carried(v); len(all) > 0 {
			section(w, modulesSection, all, describeModule)
		}
	}
	_, _ = w.WriteString("}") // the writer keeps its error
	if err := w.Flush(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// bufferSize is how many bytes are written at a time.
const bufferSize = 32 << 10

// writer writes definitions one by one: there may be a hundred thousand queues.
type writer struct {
	*bufio.Writer
	begun bool // the object has a member already
	line  []byte
}

// name begins a member.
func (w *writer) name(name string) {
	separator := byte('{')
	if w.begun {
		separator = ','
	}
	w.begun = true
	w.line = append(jsonobj.Append(append(w.line[:0], separator), name), ':')
	_, _ = w.Write(w.line) // the writer keeps its error
}

func (w *writer) value(v any) {
	w.line = jsonobj.Append(w.line[:0], v)
	_, _ = w.Write(w.line)
}

// section writes a member that is a list.
func section[T any](w *writer, name string, items []T, describe func(T) object) {
	w.name(name)
	_, _ = w.WriteString("[") // the writer keeps its error
	for i, it := range items {
		if i > 0 {
			_, _ = w.WriteString(",")
		}
		w.value(describe(it))
	}
	_, _ = w.WriteString("]")
}

// vhosts writes the contents of vhosts. Queues, exchanges and bindings go through scoped.
func (w *writer) vhosts(vs []*vhost.VHost, scoped func(object) object) {
	type exchange struct {
		vhost string
		vhost.Exchange
	}
	var parameters, own []object
	var exchanges []exchange
	var queues []*queue.Config
	var bindings []VHostBinding
	for _, v := range vs {
		parameters = append(parameters, Parameters(v)...)
		for _, p := range v.Policies().List(policies.User) {
			own = append(own, Policy(v.Name(), p))
		}
		for _, x := range v.Exchanges() {
			if _, always := vhost.Predeclared(x.Name); !always {
				exchanges = append(exchanges, exchange{v.Name(), x})
			}
		}
		for _, q := range v.Queues() {
			if !q.Config().Exclusive {
				queues = append(queues, q.Config())
			}
		}
		bindings = append(bindings, SortBindings(exported(v))...)
	}
	section(w, "parameters", parameters, func(o object) object { return o })
	section(w, "policies", own, func(o object) object { return o })
	section(w, "queues", queues, func(cfg *queue.Config) object { return scoped(Queue(cfg)) })
	section(w, "exchanges", exchanges, func(x exchange) object { return scoped(Exchange(x.vhost, x.Exchange)) })
	section(w, "bindings", bindings, func(b VHostBinding) object { return scoped(Binding(b)) })
}

// exported returns the bindings of a vhost without those to exclusive queues.
func exported(v *vhost.VHost) []VHostBinding {
	var all []VHostBinding
	for _, b := range BindingsOf(v, v.Bindings()) {
		if q := v.Mailbox(b.Destination); b.ToExchange || q != nil && !q.Config().Exclusive {
			all = append(all, b)
		}
	}
	return all
}
