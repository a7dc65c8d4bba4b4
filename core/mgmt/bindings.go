package mgmt

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"net/url"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/vhost"
)

// bindingRef is a binding of a vhost.
type bindingRef struct {
	vhost string
	vhost.Binding
}

// kinds are what bindings lead to, by the letters that paths have for them.
var kinds = map[string]bool{"q": false, "e": true}

func (a *API) bindings(c *request) error {
	var all []bindingRef
	for _, v := range c.visible() {
		all = append(all, refs(v, v.Bindings())...)
		for _, shell := range v.Mailboxes() {
			all = append(all, implicit(v, shell.Config().Name))
		}
	}
	return listBindings(c, all)
}

func (a *API) bindingsIn(c *request) error { return a.bindings(c) }

func refs(v *vhost.VHost, bs []vhost.Binding) []bindingRef {
	all := make([]bindingRef, len(bs))
	for i := range bs {
		all[i] = bindingRef{v.Name(), bs[i]}
	}
	return all
}

// implicit is the binding that every queue has to the default exchange.
func implicit(v *vhost.VHost, queue string) bindingRef {
	return bindingRef{v.Name(), vhost.Binding{Destination: queue, Key: queue}}
}

// inOrder sorts bindings, always the same way.
func inOrder(all []bindingRef) []bindingRef {
	slices.SortFunc(all, func(a, b bindingRef) int {
		first := cmp.Or(
			cmp.Compare(a.vhost, b.vhost), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Destination, b.Destination),
			cmp.Compare(weight(a.ToExchange), weight(b.ToExchange)), cmp.Compare(a.Key, b.Key),
		)
		if first != 0 {
			return first
		}
		return cmp.Compare(a.propertiesKey(), b.propertiesKey())
	})
	return all
}

func listBindings(c *request, all []bindingRef) error {
	inOrder(all)
	return list(c, listing[bindingRef]{items: all, object: describeBinding, name: func(r bindingRef) string { return r.Source }})
}

func describeBinding(r bindingRef) object {
	kind := "queue"
	if r.ToExchange {
		kind = "exchange"
	}
	return object{
		{"source", r.Source},
		{"vhost", r.vhost},
		{"destination", r.Destination},
		{"destination_type", kind},
		{"routing_key", r.Key},
		{"arguments", tableObject(r.Args)},
		{"properties_key", r.propertiesKey()},
	}
}

// propertiesKey tells a binding from others between the same two ends: its routing key and, if there are any, a hash of its
// arguments.
func (r *bindingRef) propertiesKey() string {
	key := strings.ReplaceAll(url.QueryEscape(r.Key), "~", "%7E")
	switch {
	case len(r.Args) > 0:
		return key + "~" + hashOf(r.Args)
	case key == "":
		return "~"
	}
	return key
}

// hashOf is short and the same for the same arguments, in whatever order they are.
func hashOf(args amqp.Table) string {
	sorted := slices.SortedStableFunc(slices.Values(args), func(a, b amqp.Field) int { return strings.Compare(a.Key, b.Key) })
	sum := crc32.ChecksumIEEE(amqp.AppendTable(nil, sorted))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func (*API) bindingsFrom(c *request) error {
	name := c.exchangeName()
	if name != "" {
		return listBindings(c, refs(c.vhost, c.vhost.BindingsFrom(name)))
	}
	var all []bindingRef
	for _, shell := range c.vhost.Mailboxes() {
		all = append(all, implicit(c.vhost, shell.Config().Name))
	}
	return listBindings(c, all)
}

func (*API) bindingsTo(c *request) error {
	return listBindings(c, refs(c.vhost, c.vhost.BindingsTo(c.exchangeName(), true)))
}

func (*API) bindingsOf(c *request) error {
	shell, err := c.queueShell()
	if err != nil {
		return err
	}
	name := shell.Config().Name
	return listBindings(c, append(refs(c.vhost, c.vhost.BindingsTo(name, false)), implicit(c.vhost, name)))
}

// ends are the two ends of bindings that the path names.
func (c *request) ends() (b vhost.Binding, err error) {
	toExchange, ok := kinds[c.vars["kind"]]
	if !ok {
		return b, errNotFound
	}
	b = vhost.Binding{Source: defaultless(c.vars["source"]), Destination: c.vars["destination"], ToExchange: toExchange}
	if toExchange {
		b.Destination = defaultless(b.Destination)
	}
	if err := checkName("source", b.Source); err != nil {
		return b, err
	}
	return b, checkName("destination", b.Destination)
}

// between lists the bindings from one end to the other.
func (c *request) between() ([]bindingRef, error) {
	ends, err := c.ends()
	if err != nil {
		return nil, err
	}
	if ends.Source == "" && !ends.ToExchange && c.vhost.Mailbox(ends.Destination) != nil {
		return []bindingRef{implicit(c.vhost, ends.Destination)}, nil
	}
	all := refs(c.vhost, c.vhost.BindingsTo(ends.Destination, ends.ToExchange))
	return slices.DeleteFunc(all, func(r bindingRef) bool { return r.Source != ends.Source }), nil
}

func (*API) bindingsBetween(c *request) error {
	all, err := c.between()
	if err != nil {
		return err
	}
	return listBindings(c, all)
}

// one finds the binding that the path names by its key.
func (c *request) one() (bindingRef, error) {
	all, err := c.between()
	if err != nil {
		return bindingRef{}, err
	}
	i := slices.IndexFunc(all, func(r bindingRef) bool { return r.propertiesKey() == c.vars["key"] })
	if i < 0 {
		return bindingRef{}, errNotFound
	}
	return all[i], nil
}

func (*API) binding(c *request) error {
	r, err := c.one()
	if err != nil {
		return err
	}
	return c.reply(describeBinding(r))
}

func (*API) bind(c *request) error {
	b, err := c.ends()
	if err != nil {
		return err
	}
	f, err := c.body()
	if err != nil {
		return err
	}
	if b.Key, err = f.name("routing_key"); err != nil {
		return err
	}
	if b.Args, err = f.arguments(); err != nil {
		return err
	}
	if err := c.ask(bindMethod(&b)); err != nil {
		return err
	}
	r := bindingRef{c.vhost.Name(), b}
	c.w.Header().Set("Location", url.PathEscape(b.Destination)+"/"+url.PathEscape(r.propertiesKey()))
	return c.created(true)
}

func bindMethod(b *vhost.Binding) amqp.Method {
	if b.ToExchange {
		return &amqp.ExchangeBind{Source: b.Source, Destination: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
	}
	return &amqp.QueueBind{Exchange: b.Source, Queue: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
}

func (*API) unbind(c *request) error {
	r, err := c.one()
	if err != nil {
		return err
	}
	if err := c.ask(unbindMethod(&r.Binding)); err != nil {
		return err
	}
	return c.done()
}

func unbindMethod(b *vhost.Binding) amqp.Method {
	if b.ToExchange {
		return &amqp.ExchangeUnbind{Source: b.Source, Destination: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
	}
	return &amqp.QueueUnbind{Exchange: b.Source, Queue: b.Destination, RoutingKey: b.Key, Arguments: b.Args}
}
