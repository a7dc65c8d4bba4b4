package mgmt

import (
	"encoding/json"
	"mime"
	"net/http"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// Definitions are files as RabbitMQ writes and reads them: everything that is declared, and no messages. What cannot outlive
// a connection, exclusive queues, is left out, and what every vhost has anyway.

// definitionsWriter is definitions on their way to the client. They are written as they are made: there may be a hundred thousand queues.
type definitionsWriter struct {
	w     http.ResponseWriter
	out   *http.ResponseController
	b     json.RawMessage
	begun bool  // there is a member already
	err   error // the client is gone
}

func (c *request) newFile() *definitionsWriter {
	if name := c.query.raw.Get("download"); name != "" {
		c.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	}
	c.w.Header().Set("Content-Type", "application/json")
	return &definitionsWriter{w: c.w, out: http.NewResponseController(c.w), b: json.RawMessage{'{'}}
}

func (f *definitionsWriter) name(name string) {
	if f.begun {
		f.b = append(f.b, ',')
	}
	f.begun = true
	f.b = append(appendString(f.b, name), ':')
}

func (f *definitionsWriter) member(name string, value any) {
	f.name(name)
	f.b = appendJSON(f.b, value)
}

// section writes a list of objects. Those that are nil are left out.
func section[T any](f *definitionsWriter, name string, items []T, describe func(T) object) {
	f.name(name)
	f.b = append(f.b, '[')
	first := true
	for _, it := range items {
		o := describe(it)
		if o == nil {
			continue
		}
		if !first {
			f.b = append(f.b, ',')
		}
		first = false
		f.b = appendObject(f.b, o)
		f.flush(chunk)
	}
	f.b = append(f.b, ']')
}

// flush writes what there is if that is at least so many bytes.
func (f *definitionsWriter) flush(least int) {
	if len(f.b) < least || f.err != nil {
		return
	}
	_ = f.out.SetWriteDeadline(time.Now().Add(chunkTime)) // a writer that cannot be given up has other limits
	_, f.err = f.w.Write(f.b)
	f.b = f.b[:0]
}

func (f *definitionsWriter) end() {
	f.b = append(f.b, '}')
	f.flush(0)
}

func (a *API) exportAll(c *request) error {
	f := c.newFile()
	a.fileHeader(f)
	section(f, "users", a.users().List(), describeUser)
	section(f, "vhosts", a.Store.VHosts(), vhostDefinition)
	section(f, "permissions", a.users().Grants(), describeGrant)
	section(f, "topic_permissions", a.users().TopicGrants(), describeTopic)
	section(f, "global_parameters", a.Store.GlobalParameters(), describeGlobal)
	exportVHosts(f, a.Store.VHosts(), true)
	f.end()
	return nil
}

func (a *API) exportVHost(c *request) error {
	f := c.newFile()
	a.fileHeader(f)
	exportVHosts(f, []*vhost.VHost{c.vhost}, false)
	f.end()
	return nil
}

func (a *API) fileHeader(f *definitionsWriter) {
	f.member("rabbit_version", speaks)
	f.member("rabbitmq_version", speaks)
	f.member("product_name", a.Product)
	f.member("product_version", a.Version)
}

// exportVHosts writes what is in vhosts. Unless it is for one vhost alone, everything says in which it is.
func exportVHosts(f *definitionsWriter, vs []*vhost.VHost, named bool) {
	var parameters []object
	var own []policyRef
	var exchanges []exchangeRef
	var queues []queueRef
	var bindings []bindingRef
	for _, v := range vs {
		parameters = append(parameters, parametersOf(v)...)
		for _, p := range v.Policies().List(policies.User) {
			own = append(own, policyRef{v.Name(), p})
		}
		for _, x := range v.Exchanges() {
			exchanges = append(exchanges, exchangeRef{v, x})
		}
		for _, shell := range v.Queues() {
			queues = append(queues, queueRef{v, shell, shell.Config()})
		}
		bindings = append(bindings, inOrder(exportable(v))...)
	}
	section(f, "parameters", parameters, itself)
	section(f, "policies", own, describePolicy)
	section(f, "queues", queues, func(r queueRef) object { return queueDefinition(r.cfg, named) })
	section(f, "exchanges", exchanges, func(r exchangeRef) object { return exchangeDefinition(r, named) })
	section(f, "bindings", bindings, func(r bindingRef) object { return bindingDefinition(r, named) })
}

func vhostDefinition(v *vhost.VHost) object {
	m := v.Metadata()
	o := object{{"name", v.Name()}}
	if m.Description != "" {
		o.add("description", m.Description)
	}
	if len(m.Tags) > 0 {
		o.add("tags", m.Tags)
	}
	if m.DefaultQueueType != "" {
		o.add("default_queue_type", m.DefaultQueueType)
	}
	if m.Tracing {
		o.add("tracing", true)
	}
	return append(o, member{"metadata", metadataObject(&m)})
}

// metadataObject is what is said of a vhost once more, where RabbitMQ reads it.
func metadataObject(m *vhost.Metadata) object {
	o := object{{"description", m.Description}, {"tags", tagList(m.Tags)}}
	if m.DefaultQueueType != "" {
		o.add("default_queue_type", m.DefaultQueueType)
	}
	return o
}

// placed begins the definition of something in a vhost.
func placed(name, vhost string, named bool) object {
	if named {
		return object{{"name", name}, {"vhost", vhost}}
	}
	return object{{"name", name}}
}

func queueDefinition(cfg *queue.Config, named bool) object {
	if cfg.Exclusive {
		return nil
	}
	return append(
		placed(cfg.Name, cfg.VHost, named),
		member{"durable", cfg.Durable}, member{"auto_delete", cfg.AutoDelete}, member{"arguments", argsObject(cfg.Args)},
	)
}

func exchangeDefinition(r exchangeRef, named bool) object {
	if vhost.Predeclared(r.Name) {
		return nil
	}
	return append(
		placed(r.Name, r.vhost.Name(), named),
		member{"type", r.Type}, member{"durable", r.Durable}, member{"auto_delete", r.AutoDelete}, member{"internal", r.Internal},
		member{"arguments", tableObject(r.Args)},
	)
}

// exportable are the bindings of a vhost but those to exclusive queues.
func exportable(v *vhost.VHost) []bindingRef {
	var all []bindingRef
	for _, r := range refs(v, v.Bindings()) {
		if shell := v.Mailbox(r.Destination); r.ToExchange || shell != nil && !shell.Config().Exclusive {
			all = append(all, r)
		}
	}
	return all
}

func bindingDefinition(r bindingRef, named bool) object {
	o := describeBinding(r)
	o = o[:len(o)-1] // the properties key, which is the last one
	if named {
		return o
	}
	return append(object{o[0]}, o[2:]...)
}
